"""Shared by the checks of budgets on a GPU: the tested device, and small programs for it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import recoup
from recoup._memory.device_memory import free_bytes

MIB = 1 << 20
KIB = 1 << 10
Check = Callable[..., None]
CHECKS: dict[str, Check] = {}


@dataclass
class Here:
    """The tested device."""

    device: torch.device = torch.device("cpu")  # noqa: RUF009
    fake: Any = None
    """The extension module of the test device, if it stands for CUDA."""
    stand_in: Any = None
    """The module `recoup_cuda_stand_in`, if the stand-in provides CUDA."""


here = Here()


def check(function: Check) -> Check:
    CHECKS[function.__name__] = function
    return function


def stand_in_lacks(kernels: str) -> bool:
    """Whether the device is the stand-in; if so, prints that the stand-in has no such kernels."""
    if here.stand_in is not None:
        print(f"the stand-in has no kernels of {kernels}")
    return here.stand_in is not None


def same(a: Tensor, b: Tensor) -> bool:
    a, b = (x.detach().cpu().contiguous().reshape(-1).view(torch.uint8) for x in (a, b))
    return torch.equal(a, b)


def synchronize() -> None:
    torch.accelerator.synchronize(here.device)


def chain(count: int = 24, width: int = 256, seed: int = 0, *, bias: bool = True) -> nn.Sequential:
    """A network with more activations than parameters, and with dropout."""
    torch.manual_seed(seed)
    layers = [
        nn.Sequential(nn.Linear(width, width, bias=bias), nn.GELU(), nn.Dropout(0.1))
        for _ in range(count)
    ]
    return nn.Sequential(*layers).to(here.device)


def step(model: nn.Module, rows: int = 512, seed: int = 1) -> list[Tensor]:
    """The loss and the gradients of one step."""
    torch.manual_seed(seed)
    x = torch.randn(rows, 256, device=here.device)
    loss = model(x).square().mean()
    loss.backward()
    gradients = [
        parameter.grad.cpu() for parameter in model.parameters() if parameter.grad is not None
    ]
    model.zero_grad()
    return [loss.detach().cpu(), *gradients]


def assert_same(ours: list[Tensor], theirs: list[Tensor]) -> None:
    assert len(ours) == len(theirs)
    for at, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        assert same(a, b), f"result {at} differs"


def small_budget(model: nn.Module, fraction: float = 0.5) -> int:
    """The memory from outside, and a fraction of what one step adds to it."""
    with recoup.budget(min(free_bytes(here.device), 128 * MIB), device=here.device) as run:
        step(model)
    stats = run.stats()
    return stats.external_bytes + int((stats.peak_bytes - stats.external_bytes) * fraction)


def with_outside(budget: int) -> int:
    """A budget that leaves `budget` bytes for tensors of its scope."""
    empty_cache()
    return budget + recoup._C.gpu_memory(here.device.index or 0)["outside_bytes"]


def empty_cache() -> None:
    (torch.cuda if here.fake is None else here.fake).empty_cache()


def used_bytes() -> int:
    """Used memory of the device according to its driver."""
    if here.fake is not None:
        return int(here.fake.allocated_bytes(here.device.index))
    free, total = torch.cuda.mem_get_info(here.device)
    return total - free


@contextmanager
def counted_waits() -> Iterator[list[int]]:
    """Appends the number of times that the host waits for the device within the `with`.

    On a GPU, PyTorch raises an error when PyTorch itself waits; the stand-in counts all waits.
    """
    counted: list[int] = []
    if here.fake is not None or here.stand_in is not None:
        before = host_waits()
        yield counted
        counted.append(host_waits() - before)
        return
    mode = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield counted
        counted.append(0)
    finally:
        torch.cuda.set_sync_debug_mode(mode)


def host_waits() -> int:
    if here.fake is not None:
        return int(here.fake.synchronizations())
    return int(here.stand_in.counters()["host_waits"])


# ---- refused calls ----
def message(kind: type[BaseException], function: Callable[[], Any]) -> str:
    try:
        function()
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__}")
