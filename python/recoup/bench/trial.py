"""A training of one net for some steps, plain or in a budget: time, digests and counters."""

import contextlib
import gc
import hashlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

import recoup
from recoup._memory.device_memory import free_bytes, outside_bytes
from recoup._verify.bits import pieces
from recoup.bench.flat_options import split
from recoup.bench.nets import Net

_T = TypeVar("_T")

UNREACHED = free_bytes(torch.device("cpu"))


@dataclass(frozen=True)
class Trial:
    """Measurements and digest of a training."""

    step_seconds: float
    """Median time of a step without the first, which warms up."""
    digest: str
    """Digest of losses, parameters, buffers, gradients and optimizer state, to the bit."""
    stats: recoup.Stats | None
    """The run's counters; None if it was plain."""


@dataclass(frozen=True)
class Trained:
    """A training that has ended."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    losses: list[float]
    """The loss of each step."""
    seconds: list[float]
    """Time of each step, in seconds."""

    def digests(self) -> dict[str, str]:
        """A digest of each kind of result: losses, parameters, and so on."""
        parameters = list(self.model.parameters())
        states = [value for state in self.optimizer.state.values() for value in state.values()]
        return {
            "losses": hashlib.sha256(repr(self.losses).encode()).hexdigest(),
            "parameters": _digest(parameters),
            "buffers": _digest(self.model.buffers()),
            "gradients": _digest(each.grad for each in parameters if each.grad is not None),
            "optimizer": _digest(state for state in states if isinstance(state, Tensor)),
        }


def run_steps(
    net: Net, steps: int, seed: int, *, before: Callable[[int], None] = lambda step: None
) -> Trained:
    """Trains a net with AdamW.

    before: called with the number of each step, from 0, before it starts.
    """
    torch.manual_seed(seed)
    model = net.make().train().to(net.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    chance = torch.Generator().manual_seed(seed + 1)
    trained = Trained(model, optimizer, [], [])
    for step in range(steps):
        before(step)
        start = time.perf_counter()
        batch = tree_map_only(Tensor, lambda part: part.to(net.device), net.batch(chance))
        loss = net.loss(model, batch)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        trained.losses.append(loss.item())
        trained.seconds.append(time.perf_counter() - start)
    return trained


def train(net: Net, steps: int, seed: int) -> tuple[list[float], dict[str, str]]:
    """Seconds of each step, and a digest of each kind of result: losses, parameters, and so on."""
    trained = run_steps(net, steps, seed)
    return trained.seconds, trained.digests()


def _digest(tensors: Iterable[Tensor]) -> str:
    sha = hashlib.sha256()
    for tensor in tensors:
        # In pieces: a tensor whose address is given to NumPy stays in memory, and a budget may be
        # smaller than all of them.
        for piece in pieces(tensor.detach().cpu()):
            sha.update(piece)
    return sha.hexdigest()


def trial_of(trained: Trained, stats: recoup.Stats | None = None) -> Trial:
    """The trial of a training; digests its results. stats: the counters of its run in a budget."""
    return _trial(trained.seconds, trained.digests(), stats)


def _trial(seconds: list[float], bits: dict[str, str], stats: recoup.Stats | None) -> Trial:
    digest = hashlib.sha256("".join(bits.values()).encode()).hexdigest()
    return Trial(step_median(seconds), digest, stats)


def step_median(seconds: list[float]) -> float:
    """Median without the first step, which warms up."""
    return statistics.median(seconds[1:] or seconds)


def run_plainly(net: Net, steps: int, seed: int) -> Trial:
    """Trains without recoup."""
    return trial_of(run_steps(net, steps, seed))


def run_in(net: Net, steps: int, seed: int, budget: int, **options: Any) -> Trial:
    """Trains in a budget, in addition to memory in use on the device. Raises as `call_in`."""
    budget += outside_bytes(net.device)
    trained, stats = call_in(budget, lambda: train(net, steps, seed), device=net.device, **options)
    return _trial(*trained, stats)


def call_in(
    budget: int,
    function: Callable[[], _T],
    *,
    guard: Callable[[recoup.Run], AbstractContextManager[Any]] = contextlib.nullcontext,
    stops: tuple[type[Exception], ...] = (recoup.OutOfBudgetError,),
    **options: Any,
) -> tuple[_T, recoup.Stats]:
    """The function's result, and the counters of its run in a budget.

    guard: makes a context manager around the function.
    stops: exceptions that are expected to end it; they are raised without their traceback.

    Raises OutOfBudgetError if the budget is too small; the scope has ended in any case.
    """
    run = None
    try:
        with recoup.budget(budget, **split(options)) as run, guard(run):
            result = function()
        return result, run.stats()
    except stops as error:
        if run is not None:
            with contextlib.suppress(RuntimeError):  # the scope has ended already
                run.resume(free_bytes(run.device))
        raise error.with_traceback(None) from None  # the traceback holds the training's tensors
    finally:
        gc.collect()


def compute_overhead(stats: recoup.Stats) -> float:
    """Op time and replays over op time, as the papers report it."""
    return (stats.op_ns + stats.replay_cost_ns) / stats.op_ns


def record(net: Net, steps: int, seed: int, path: Path | None = None) -> recoup.Trace:
    """The trace of a training without evictions; path: its file, None: it is not kept."""
    with tempfile.TemporaryDirectory() as folder:
        file = path or Path(folder) / "run.rtrace"
        with recoup.trace(file, device=net.device):
            train(net, steps, seed)
        return recoup.Trace.read(file)
