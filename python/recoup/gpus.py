"""Budgets on GPUs: how PyTorch's CUDA allocator is met, and why there can be none.

Until a budget on a GPU is asked for, recoup does nothing about GPUs. Under RECOUP_GPUS=pluggable it
is PyTorch's allocator from its import on, in budgets and outside; that goes when budgets with
PyTorch's own have run on a GPU.
"""

import ctypes
import dataclasses
import os
import threading
from pathlib import Path
from typing import Any

import torch

from recoup import _C
from recoup.patches import Patches, Replacement

EXPERIMENTAL = "budgets on GPUs are experimental: they have run on a stand-in for CUDA only"


@dataclasses.dataclass
class _Installed:
    """What came of the first question whether there can be budgets; there is one a process."""

    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)
    asked: bool = False
    problem: str | None = None
    # PyTorch keeps what it is made of, but not for longer than this.
    allocator: Any = None


_installed = _Installed()


def problem() -> str | None:
    """Why there can be no budget on a GPU; None when there can, and from now on.

    Nothing is asked of the driver, so that a process may still fork and use CUDA in the child.
    """
    with _installed.lock:
        if not _installed.asked:
            _installed.problem = _find_problem() or _install()
            _installed.asked = True
        return _installed.problem


def _install() -> str | None:
    if _wish() == "pluggable":
        return _install_pluggable()
    try:
        _C.install_cuda()
    except RuntimeError as error:
        return str(error)
    return None


def _install_pluggable() -> str | None:
    functions = ctypes.CDLL(str(Path(_C.__file__).parent / "lib/librecoup_torch.so"))

    def address(name: str) -> int:
        value = ctypes.cast(getattr(functions, name), ctypes.c_void_p).value
        assert value is not None
        return value

    _C.install_pluggable_cuda()
    allocator = torch._C._cuda_customAllocator(
        address("recoup_cuda_malloc"), address("recoup_cuda_free")
    )
    pluggable: Any = allocator
    pluggable.set_record_stream_fn(address("recoup_cuda_record_stream"))
    pluggable.set_reset_fn(address("recoup_cuda_empty_cache"))
    pluggable.set_begin_allocate_to_pool(address("recoup_cuda_begin_pool"))
    pluggable.set_end_allocate_to_pool_fn(address("recoup_cuda_end_pool"))
    pluggable.set_release_pool(address("recoup_cuda_release_pool"))
    try:
        torch._C._cuda_changeCurrentAllocator(allocator)
    except RuntimeError:
        return (
            "PyTorch's CUDA allocator had been replaced already when recoup was imported: import "
            "recoup first, or do without RECOUP_GPUS=pluggable"
        )
    _installed.allocator = allocator
    PATCHES.install("process")  # and never removed
    return None


def memory_stats(device: int) -> dict[str, Any]:
    """For `torch.cuda.memory_stats` of the pluggable one: bytes, and 0 for what is not counted."""

    def stat(current: int = 0, peak: int = 0) -> dict[str, dict[str, int]]:
        counted = {"current": current, "peak": peak, "allocated": 0, "freed": 0}
        nothing = dict.fromkeys(counted, 0)
        return {"all": counted, "small_pool": nothing, "large_pool": nothing}

    memory = _C.gpu_memory(device)
    peak_reserved, peak_used = _C.pluggable_peaks(device)
    used = stat(memory["used_bytes"], peak_used)
    names = ("allocation", "segment", "active", "inactive_split", "inactive_split_bytes")
    return {
        **{name: stat() for name in names},
        "allocated_bytes": used,
        "active_bytes": used,
        "requested_bytes": used,
        "reserved_bytes": stat(memory["reserved_bytes"], peak_reserved),
        **{name: stat()["all"] for name in ("oversize_allocations", "oversize_segments")},
        **dict.fromkeys(
            (
                "max_split_size",
                "num_alloc_retries",
                "num_device_alloc",
                "num_device_free",
                "num_ooms",
                "num_sync_all_streams",
            ),
            0,
        ),
    }


_OF_CUDA = "PyTorch without CUDA has no statistics of it"
PATCHES = Patches(
    [
        Replacement(torch._C, "_cuda_memoryStats", lambda _: memory_stats, _OF_CUDA),
        Replacement(
            torch._C, "_cuda_resetPeakMemoryStats", lambda _: _C.reset_pluggable_peaks, _OF_CUDA
        ),
        Replacement(
            torch._C, "_cuda_resetAccumulatedMemoryStats", lambda _: lambda device: None, _OF_CUDA
        ),
    ]
)
"""Of a pluggable allocator PyTorch has no statistics: asked for, it raises."""


def _wish() -> str:
    return os.environ.get("RECOUP_GPUS", "")


def _find_problem() -> str | None:
    if _wish() == "0":
        return "RECOUP_GPUS=0 asks for none"
    if _wish() not in ("", "pluggable"):
        return f"RECOUP_GPUS={_wish()} is neither 0 nor pluggable: unset it"
    if torch.version.cuda is None:
        return f"PyTorch {torch.__version__} has no CUDA: install a build that has"
    if not _C.with_cuda:
        return (
            "recoup was built without CUDA: install a CUDA Toolkit, 12 or later, and build it again"
        )
    if _wish() == "pluggable" and _in_use():
        return (
            "CUDA was in use when recoup was imported: import recoup before the first tensor on a "
            "GPU is made, or do without RECOUP_GPUS=pluggable"
        )
    return None


def _in_use() -> bool:
    cuda: Any = torch.cuda  # without types
    return bool(cuda.is_initialized())


def default_device() -> str:
    """The GPU that the program uses, if it uses one by now; else the CPU."""
    if _in_use() and problem() is None:
        return f"cuda:{torch.cuda.current_device()}"
    return "cpu"


def parse_device(device: torch.device | str | int | None) -> torch.device:
    """The device of a budget, with its index. Raises TypeError, ValueError or RuntimeError.

    An int is the index of a GPU, as everywhere in PyTorch.
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
        raise RuntimeError(
            f"there can be no budget on a GPU: {why} ({EXPERIMENTAL}; see docs/cuda.md)"
        )
    if parsed.type not in ("cuda", torch._C._get_privateuse1_backend_name()):
        raise ValueError(f"device must be 'cpu' or a GPU such as 'cuda:0'; got {str(device)!r}")
    if parsed.index is None:
        index = torch.cuda.current_device() if parsed.type == "cuda" else 0
        return torch.device(parsed.type, index)
    return parsed


def empty_cache(device: torch.device) -> None:
    """Gives what no tensor uses back to the driver."""
    getattr(torch, device.type).empty_cache()


def forget_workspaces(device: torch.device) -> None:
    """Lets go of what cuBLAS keeps for its products: it is made anew, where a budget counts it."""
    if device.type == "cuda":
        torch._C._cuda_clearCublasWorkspaces()
