"""Budgets on GPUs: installs recoup's hook in PyTorch's CUDA allocator, or says why it cannot.

Until a budget on a GPU is asked for, recoup leaves CUDA alone.
"""

import dataclasses
import os
import threading
from typing import Any

import torch

from recoup import _C

EXPERIMENTAL = "GPU budgets are experimental: they were tested on two GPU models only"


@dataclasses.dataclass
class _Installed:
    """Result of the first check whether budgets on GPUs are possible; one per process."""

    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)
    asked: bool = False
    problem: str | None = None


_installed = _Installed()


def problem() -> str | None:
    """Why budgets on GPUs are impossible; None if they are possible, with the hook installed.

    Does not initialize the CUDA driver, so that the process may still fork and use CUDA in the
    child.
    """
    with _installed.lock:
        if not _installed.asked:
            _installed.problem = _find_problem() or _install()
            _installed.asked = True
        return _installed.problem


def _install() -> str | None:
    try:
        _C.install_cuda()
    except RuntimeError as error:
        return str(error)
    return None


def _wish() -> str:
    return os.environ.get("RECOUP_GPUS", "")


def _find_problem() -> str | None:
    if _wish() == "0":
        return "RECOUP_GPUS=0 disables them"
    if _wish() != "":
        return f"RECOUP_GPUS={_wish()} is not a valid value; the only one is 0: unset it"
    if torch.version.cuda is None:
        return (
            f"PyTorch {torch.__version__} was built without CUDA: install a CUDA build of PyTorch"
        )
    if not _C.with_cuda:
        return (
            "recoup was built without CUDA: install a CUDA Toolkit, version 12 or later, and "
            "rebuild recoup"
        )
    return None


def _in_use() -> bool:
    cuda: Any = torch.cuda  # it has no type annotations
    return bool(cuda.is_initialized())


def default_device() -> str:
    """The current GPU if the program has already used CUDA, else the CPU."""
    if _in_use() and problem() is None:
        return f"cuda:{torch.cuda.current_device()}"
    return "cpu"


def parse_device(device: torch.device | str | int | None) -> torch.device:
    """The device of a budget, with its index. Raises TypeError, ValueError or RuntimeError.

    An int is the index of a GPU, as everywhere in PyTorch; None means `default_device()`.
    """
    if device is None:
        device = default_device()
    if isinstance(device, bool) or not isinstance(device, torch.device | str | int):
        raise TypeError(f"device must be a torch.device or its name; got {device!r}")
    try:
        parsed = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"device: {error}") from None
    if parsed.type == "cpu":
        return torch.device("cpu")
    if parsed.type == "cuda" and (why := problem()) is not None:
        raise RuntimeError(f"GPU budgets are unavailable: {why} ({EXPERIMENTAL}; see docs/cuda.md)")
    if parsed.type not in ("cuda", torch._C._get_privateuse1_backend_name()):
        raise ValueError(f"device must be 'cpu' or a GPU such as 'cuda:0'; got {str(device)!r}")
    if parsed.index is None:
        index = torch.cuda.current_device() if parsed.type == "cuda" else 0
        return torch.device(parsed.type, index)
    return parsed


def empty_cache(device: torch.device) -> None:
    """Returns cached blocks that no tensor uses to the driver."""
    getattr(torch, device.type).empty_cache()


def forget_workspaces(device: torch.device) -> None:
    """Frees cuBLAS's workspaces; they are allocated again where a budget counts them."""
    if device.type == "cuda":
        torch._C._cuda_clearCublasWorkspaces()
