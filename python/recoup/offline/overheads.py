"""recoup's own time, measured on this machine to predict the time of a step."""

import functools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import dropout

from recoup.offline.traces import Trace
from recoup.options import Options
from recoup.scope import budget, trace


@dataclass(frozen=True)
class Overheads:
    """Times in nanoseconds that recoup adds to a step."""

    op_ns: float = 0.0
    """Per op, in a budget without evictions."""
    recording_op_ns: float = 0.0
    """Per op, in a recording."""
    replay_ns: float = 0.0
    """Per replay, in addition to the op's own cost."""
    moved_byte_ns: float = 0.0
    """Per byte moved within the pool."""


_LAYERS = 8
_WIDTH = 32
_ROUNDS = 3
_STEPS = 6
_DEEP_LAYERS = 32
_DEEP_ROWS = 128
_FRACTION = 0.5  # budget, as a fraction of the deep network's peak
_COPIED_BYTES = 1 << 14


def measure_overheads(trace_file: Path) -> Overheads:
    """Measures trainings of a small network, of a deep one that replays, and copies.

    A training runs more code between its ops than a loop over one op, so recoup's code must be
    fetched into the processor's caches again, as in the program whose time is predicted. The state
    of PyTorch's random numbers on the CPU is restored afterwards.

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
        return Overheads(
            op_ns=max(watched - plain, 0.0) / ops,
            recording_op_ns=max(recorded - plain, 0.0) / ops,
            replay_ns=_replay_ns(),
            moved_byte_ns=_copied_byte_ns(),
        )


def _training() -> Callable[[], None]:
    """A step of single-threaded ops: a busy machine delays threads that wait for one another."""
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


def _deep_training() -> Callable[[], None]:
    """A step of a network of matrix products and norms. Kernels of replays are slower than those of
    the program, because their operands are not in the processor's caches.
    """
    layers = [
        nn.Sequential(nn.Linear(_WIDTH, _WIDTH), nn.LayerNorm(_WIDTH), nn.GELU(), nn.Dropout(0.1))
        for _ in range(_DEEP_LAYERS)
    ]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    x = torch.ones(_DEEP_ROWS, _WIDTH)

    def step() -> None:
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def _replay_ns() -> float:
    """Minimum over some steps of the time per replay in addition to the cost of its op."""
    step = _deep_training()
    with budget("64MiB", device="cpu") as ample:
        step()
        step()
        outside = ample.stats().external_bytes
        room = ample.stats().peak_bytes - outside
    least = float("inf")
    with budget(
        outside + round(_FRACTION * room), device="cpu", options=Options(planning="off")
    ) as run:
        step()
        before = run.stats()
        for _ in range(_STEPS):
            step()
            after = run.stats()
            replays = after.replays - before.replays
            took_ns = after.replay_ns - before.replay_ns
            cost_ns = after.replay_cost_ns - before.replay_cost_ns
            if replays > 0:
                least = min(least, (took_ns - cost_ns) / replays)
            before = after
    return max(least, 0.0) if math.isfinite(least) else 0.0


def _copied_byte_ns() -> float:
    source = torch.ones(_COPIED_BYTES, dtype=torch.uint8)
    target = torch.empty_like(source)
    return _fastest_ns(functools.partial(target.copy_, source)) / _COPIED_BYTES
