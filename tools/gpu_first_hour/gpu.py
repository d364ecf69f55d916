"""The device of a check: a GPU, or in a rehearsal the tests' double of one."""

import os
from typing import Any

import torch

import fakegpu

MIB = 1 << 20
LEAST_BYTES = 2 * MIB
"""Smallest budget on a GPU."""


def open_device(name: str, double_bytes: int = 256 * MIB) -> torch.device:
    """Opens the device; makes the double, with that much memory, if it is asked for.

    Call it once, before any computation.
    """
    # cuBLAS computes repeatable results only with workspaces of a fixed size.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if name.startswith(fakegpu.NAME):
        if fakegpu.path_of_extension() is None:
            raise RuntimeError("the test device is not built: run `make test-device`")
        fakegpu.install(seed=1, memory_bytes=double_bytes)
    device = torch.device(name)
    if is_real(device):
        import recoup

        why = recoup.gpus.problem()
        if why is not None:
            raise RuntimeError(f"recoup can have no budget on {name}: {why}")
        torch.cuda.set_device(device)
        torch.cuda.init()
    return device


def is_real(device: torch.device) -> bool:
    return device.type == "cuda"


def module(device: torch.device) -> Any:
    """`torch.cuda`, or the module with the same functions for another device."""
    return getattr(torch, device.type)


def synchronize(device: torch.device) -> None:
    torch.accelerator.synchronize(device)


def make_repeatable(strict: bool) -> None:
    """Makes PyTorch use deterministic kernels where it has them.

    strict: an op without a deterministic kernel raises. Otherwise the backward pass of fused
        attention keeps a kernel whose bits differ from run to run.
    """
    torch.use_deterministic_algorithms(True, warn_only=not strict)
    torch.utils.deterministic.fill_uninitialized_memory = False  # users' trainings do not fill it
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


def cores() -> int:
    """Number of cores that this process may run on."""
    return len(os.sched_getaffinity(0))
