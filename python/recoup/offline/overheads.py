"""What recoup itself takes, measured on this machine for predictions of the time of a step."""

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import dropout

from recoup.offline.traces import Trace
from recoup.scope import budget, trace


@dataclass(frozen=True)
class Overheads:
    """Times in nanoseconds that a step takes in a budget and not without recoup."""

    op_ns: float = 0.0
    """Per op, in a budget in which nothing is evicted."""
    recording_op_ns: float = 0.0
    """Per op, in a recording."""
    replay_ns: float = 0.0
    """Per replay, without the op's own cost."""
    eviction_ns: float = 0.0
    """Per eviction: the search for what to evict, and bookkeeping."""
    moved_byte_ns: float = 0.0
    """Per byte that is moved within the pool."""


_LAYERS = 8
_WIDTH = 32
_ROUNDS = 3
_STEPS = 6
_VALUES = 64
_VALUE_BYTES = 1 << 14
_COPIED_BYTES = 1 << 14


def measure_overheads(trace_file: Path) -> Overheads:
    """Measures a training of a small network, replays and evictions of small values, and copies.

    A training runs more code between its ops than a loop over one op does, so recoup's code has to
    be fetched into the processor's caches again, as in the program whose time is predicted.
    The state of PyTorch's random numbers on the CPU is the same afterwards.

    trace_file: a file that is written and deleted.
    """
    with torch.random.fork_rng(devices=[]):
        step = _training()
        step()  # makes the optimizer's state
        plain = watched = recorded = float("inf")
        for _ in range(_ROUNDS):
            plain = min(plain, _fastest_ns(step))
            with budget("64MiB", device="cpu"):
                watched = min(watched, _fastest_ns(step))
            with trace(trace_file, device="cpu"):
                recorded = min(recorded, _fastest_ns(step))
        ops = len(Trace.read(trace_file).ops()) // _STEPS
        trace_file.unlink()
        replay_ns, eviction_ns = _replay_and_eviction_ns()
        return Overheads(
            op_ns=max(watched - plain, 0.0) / ops,
            recording_op_ns=max(recorded - plain, 0.0) / ops,
            replay_ns=replay_ns,
            eviction_ns=eviction_ns,
            moved_byte_ns=_copied_byte_ns(),
        )


def _training() -> Callable[[], None]:
    """A step of ops that run in one thread: a busy machine delays threads that wait for others."""
    weights = [nn.Parameter(torch.ones(_WIDTH)) for _ in range(_LAYERS)]
    optimizer = torch.optim.SGD(weights, lr=1e-3, momentum=0.9)
    x = torch.ones(4, _WIDTH)

    def step() -> None:
        y = x
        for weight in weights:
            y = dropout((y * weight + x).sigmoid(), 0.1).tanh()
        optimizer.zero_grad()
        (y - x).square().mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def _fastest_ns(step: Callable[[], object]) -> float:
    fastest = float("inf")
    for _ in range(_STEPS):
        start = time.perf_counter_ns()
        step()
        fastest = min(fastest, time.perf_counter_ns() - start)
    return fastest


def _replay_and_eviction_ns() -> tuple[float, float]:
    budget_bytes = _VALUE_BYTES * _VALUES // 2
    with budget(budget_bytes, device="cpu", small_leaf_bytes=0, planning="off") as run:
        values = [torch.ones(_VALUE_BYTES // 4)]
        for _ in range(_VALUES):
            values.append(values[0].exp())  # each is replayed by itself
        replay = eviction = float("inf")
        for _ in range(_ROUNDS):
            before = run.stats()
            for value in values:
                value.sum()
            after = run.stats()
            replays = max(after.replays - before.replays, 1)
            evictions = max(after.evictions - before.evictions, 1)
            cost_ns = after.replay_cost_ns - before.replay_cost_ns
            chosen_ns = after.search_ns - before.search_ns
            kept_ns = after.bookkeeping_ns - before.bookkeeping_ns
            replay = min(replay, (after.replay_ns - before.replay_ns - cost_ns) / replays)
            eviction = min(eviction, (chosen_ns + kept_ns) / evictions)
        del values, value  # what lives at the end of the scope would have to fit
    return max(replay, 0.0), eviction


def _copied_byte_ns() -> float:
    source = torch.ones(_COPIED_BYTES, dtype=torch.uint8)
    target = torch.empty_like(source)
    return _fastest_ns(functools.partial(target.copy_, source)) / _COPIED_BYTES
