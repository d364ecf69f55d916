"""The stand-in for CUDA in a Python process: its kernels, and queries for tests.

`import torch` calls `load` if this folder is in PYTHONPATH. CUDA_STAND_IN_KERNELS is the path of
the library of kernels.
"""

import ctypes
import os
from typing import Any

KERNELS = "CUDA_STAND_IN_KERNELS"
RUNTIME = "libcudart.so.13"  # CUDA 13's, which is preloaded
COUNTS = ("host_waits", "stream_waits", "event_records", "copies", "launches")


def load() -> None:
    """Installs CPU kernels for CUDA's dispatch key."""
    if KERNELS not in os.environ:
        return
    import torch

    if is_host_only():
        torch.backends.cudnn.enabled = False
        torch.backends.cuda.enable_cudnn_sdp(False)
        kernels().stand_in_install_host_only()
        return
    kernels().stand_in_install_kernels()
    # Work runs late, so a program's own setting of oneDNN might not be in force at that time.
    torch._C._set_mkldnn_enabled(False)
    # cuDNN and fused attention have no CPU kernels.
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
    library.stand_in_all_calls.restype = ctypes.c_char_p
    return library


def is_host_only() -> bool:
    """Whether kernels are launched and do nothing: Note [Host only] in device/streams.h."""
    return os.environ.get("CUDA_STAND_IN_HOST_ONLY", "0") not in ("", "0")


def races() -> int:
    return int(runtime().stand_in_races())


def used_bytes(device: int = 0) -> int:
    """Used bytes of device memory."""
    return int(runtime().stand_in_used(device))


def pinned_bytes() -> int:
    """Pinned bytes of host memory."""
    return int(runtime().stand_in_pinned())


def set_pinned_limit(size: int) -> None:
    runtime().stand_in_set_pinned_limit(ctypes.c_size_t(size))


def counters() -> dict[str, int]:
    """The numbers of waits, records, copies and launches so far."""
    counts = (ctypes.c_int64 * len(COUNTS))()
    runtime().stand_in_counters(counts)
    return dict(zip(COUNTS, counts, strict=True))


def fail(function: str, call: int, code: int) -> None:
    """Makes the `call`-th call from now on return `code` and do nothing."""
    runtime().stand_in_fail(function.encode(), ctypes.c_int64(call), code)


def clear_faults() -> None:
    """Cancels requested errors that have not occurred."""
    runtime().stand_in_clear_faults()


def calls(function: str) -> int:
    return int(runtime().stand_in_calls(function.encode()))


def heap_allocations(thread: int) -> int:
    """The number of a thread's allocations on the heap so far, if heap/heap.cpp is preloaded."""
    counted = ctypes.CDLL(None).stand_in_heap_allocations
    counted.restype = ctypes.c_int64
    return int(counted(thread))


def all_calls() -> dict[str, int]:
    """The number of calls of each function of the runtime and the driver."""
    return counts_in(runtime().stand_in_all_calls())


def launches() -> dict[str, int]:
    """The number of launches of each kernel, by its demangled name."""
    return counts_in(runtime().stand_in_launches())


def counts_in(text: bytes) -> dict[str, int]:
    """The counts of a text with a count and a name in each line."""
    rows = (line.split(" ", 1) for line in text.decode().splitlines())
    return {name: int(count) for count, name in rows}


def kernel_failures() -> str:
    """Failures of work on streams, one per line; empty if there are none."""
    text: Any = kernels().stand_in_kernel_failures()
    return str(text.decode())
