"""The device that a check runs on: a GPU, or the tests' double of one in a rehearsal."""

import os
from typing import Any

import torch

import fakegpu

MIB = 1 << 20


def open_device(name: str, double_bytes: int = 256 * MIB) -> torch.device:
    """Makes the double where that is asked for, with so much memory.

    To be called once, before anything is computed.
    """
    # Products of cuBLAS can be repeated with workspaces of a fixed size.
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
    """`torch.cuda`, or what has its functions."""
    return getattr(torch, device.type)


def synchronize(device: torch.device) -> None:
    torch.accelerator.synchronize(device)


def make_repeatable(strict: bool) -> None:
    """Of two runs each computes the same bits, where PyTorch has kernels that do.

    strict: all ops have such kernels; an op that has none raises.
    With warn_only the backward pass of fused attention stays one whose bits differ from run to run.
    """
    torch.use_deterministic_algorithms(True, warn_only=not strict)
    torch.utils.deterministic.fill_uninitialized_memory = False  # not what a user's training does
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


def cores() -> int:
    """That this process may run on."""
    return len(os.sched_getaffinity(0))
