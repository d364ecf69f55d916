"""The stand-in for CUDA in a process of Python: its kernels, and what tests ask of it.

`import torch` calls `load` where this folder is in PYTHONPATH. CUDA_STAND_IN_KERNELS is the path of
the library of kernels.
"""

import ctypes
import os
from typing import Any

KERNELS = "CUDA_STAND_IN_KERNELS"
RUNTIME = "libcudart.so.13"  # CUDA 13's, which is preloaded
COUNTS = ("host_waits", "stream_waits", "event_records", "copies", "launches")


def load() -> None:
    """Puts the kernels of the CPU behind CUDA's dispatch key."""
    if KERNELS not in os.environ:
        return
    import torch

    kernels().stand_in_install_kernels()
    # Work runs late: a program's own switch of oneDNN would be in force or not.
    torch._C._set_mkldnn_enabled(False)
    # cuDNN and fused attention have no kernels on the CPU.
    torch.backends.cudnn.enabled = False
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_cudnn_sdp(False)


def kernels() -> ctypes.CDLL:
    library = ctypes.CDLL(os.environ[KERNELS])
    library.stand_in_kernel_failures.restype = ctypes.c_char_p
    return library


def runtime() -> ctypes.CDLL:
    library = ctypes.CDLL(RUNTIME)
    library.stand_in_used.restype = ctypes.c_size_t
    library.stand_in_pinned.restype = ctypes.c_size_t
    library.stand_in_calls.restype = ctypes.c_int64
    library.stand_in_dropped.restype = ctypes.c_int64
    library.stand_in_launches.restype = ctypes.c_char_p
    return library


def races() -> int:
    return int(runtime().stand_in_races())


def used_bytes(device: int = 0) -> int:
    """Of the device's memory."""
    return int(runtime().stand_in_used(device))


def pinned_bytes() -> int:
    """Of the host's memory."""
    return int(runtime().stand_in_pinned())


def set_pinned_limit(size: int) -> None:
    runtime().stand_in_set_pinned_limit(ctypes.c_size_t(size))


def counters() -> dict[str, int]:
    """What the host and the streams have done so far."""
    counts = (ctypes.c_int64 * len(COUNTS))()
    runtime().stand_in_counters(counts)
    return dict(zip(COUNTS, counts, strict=True))


def fail(function: str, call: int, code: int) -> None:
    """The call of that number from now on returns the code, and does nothing."""
    runtime().stand_in_fail(function.encode(), ctypes.c_int64(call), code)


def clear_faults() -> None:
    """Errors that were asked for and have not arrived are forgotten."""
    runtime().stand_in_clear_faults()


def calls(function: str) -> int:
    return int(runtime().stand_in_calls(function.encode()))


def launches() -> dict[str, int]:
    """How often each kernel was launched, by its name in C++."""
    text: Any = runtime().stand_in_launches()
    rows = (line.split(" ", 1) for line in text.decode().splitlines())
    return {name: int(count) for count, name in rows}


def kernel_failures() -> str:
    """What work on a stream could not compute; empty: nothing."""
    text: Any = kernels().stand_in_kernel_failures()
    return str(text.decode())
