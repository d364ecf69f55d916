"""A training of one net for some steps, plain or in a budget: time, digests and counters."""

import contextlib
import gc
import hashlib
import statistics
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor
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


def train(net: Net, steps: int, seed: int) -> tuple[list[float], dict[str, str]]:
    """Seconds of each step, and a digest of each kind of result: losses, parameters, and so on."""
    torch.manual_seed(seed)
    model = net.make().train().to(net.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    chance = torch.Generator().manual_seed(seed + 1)
    seconds = []
    losses = []
    for _ in range(steps):
        start = time.perf_counter()
        batch = tree_map_only(Tensor, lambda part: part.to(net.device), net.batch(chance))
        loss = net.loss(model, batch)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
    states = [value for state in optimizer.state.values() for value in state.values()]
    gradients = [parameter.grad for parameter in model.parameters()]
    return seconds, {
        "losses": hashlib.sha256(repr(losses).encode()).hexdigest(),
        "parameters": _digest(model.parameters()),
        "buffers": _digest(model.buffers()),
        "gradients": _digest(gradient for gradient in gradients if gradient is not None),
        "optimizer": _digest(state for state in states if isinstance(state, Tensor)),
    }


def _digest(tensors: Iterable[Tensor]) -> str:
    sha = hashlib.sha256()
    for tensor in tensors:
        # In pieces: a tensor whose address is given to NumPy stays in memory, and a budget may be
        # smaller than all of them.
        for piece in pieces(tensor.detach().cpu()):
            sha.update(piece)
    return sha.hexdigest()


def _trial(seconds: list[float], bits: dict[str, str], stats: recoup.Stats | None) -> Trial:
    digest = hashlib.sha256("".join(bits.values()).encode()).hexdigest()
    return Trial(step_median(seconds), digest, stats)


def step_median(seconds: list[float]) -> float:
    """Median without the first step, which warms up."""
    return statistics.median(seconds[1:] or seconds)


def run_plainly(net: Net, steps: int, seed: int) -> Trial:
    """Trains without recoup."""
    return _trial(*train(net, steps, seed), None)


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


def record(net: Net, steps: int, seed: int, path: Path) -> recoup.Trace:
    """The trace of a training without evictions."""
    with recoup.trace(path, device=net.device):
        train(net, steps, seed)
    return recoup.Trace.read(path)
