"""One net trained for some steps, plainly or in a budget: its time, its bits and its counts."""

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
from recoup.bench.nets import Net
from recoup.run import free_bytes, outside_bytes

_T = TypeVar("_T")

UNREACHED = free_bytes(torch.device("cpu"))


@dataclass(frozen=True)
class Trial:
    """What a training took and left."""

    step_seconds: float
    """The median; the first step, which warms up, is left out."""
    digest: str
    """Of losses, parameters, buffers, gradients and the optimizer's state, to the bit."""
    stats: recoup.Stats | None
    """None when it ran plainly."""


def train(net: Net, steps: int, seed: int) -> tuple[list[float], dict[str, str]]:
    """Seconds of each step, and a digest of each of the things that a Trial has one of all of."""
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
        data = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
        sha.update(data.cpu().numpy().data)
    return sha.hexdigest()


def _trial(seconds: list[float], bits: dict[str, str], stats: recoup.Stats | None) -> Trial:
    digest = hashlib.sha256("".join(bits.values()).encode()).hexdigest()
    return Trial(step_median(seconds), digest, stats)


def step_median(seconds: list[float]) -> float:
    """Without the first step, which warms up."""
    return statistics.median(seconds[1:] or seconds)


def run_plainly(net: Net, steps: int, seed: int) -> Trial:
    """Without recoup."""
    return _trial(*train(net, steps, seed), None)


def run_in(net: Net, steps: int, seed: int, budget: int, **options: Any) -> Trial:
    """In a budget, beside what is on the device already. Raises as `call_in` does."""
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
    """What the function returns, and what its run in a budget took.

    guard: what the function is called within.
    stops: what may end it: it is raised without its traceback.

    Raises OutOfBudgetError when the budget is too small; the scope is over in any case.
    """
    run = None
    try:
        with recoup.budget(budget, **options) as run, guard(run):
            result = function()
        return result, run.stats()
    except stops as error:
        if run is not None:
            with contextlib.suppress(RuntimeError):  # the scope is over already
                run.resume(free_bytes(run.device))
        raise error.with_traceback(None) from None  # the traceback holds the training's tensors
    finally:
        gc.collect()


def record(net: Net, steps: int, seed: int, path: Path) -> recoup.Trace:
    """The trace of a run that evicts nothing."""
    with recoup.trace(path, device=net.device):
        train(net, steps, seed)
    return recoup.Trace.read(path)
