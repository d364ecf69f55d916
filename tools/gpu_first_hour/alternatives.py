"""Trains a net with a common way to save memory and plainly, and with recoup in the same memory.

Compiled blocks draw other random numbers than eager ones, so their bits may differ: the page
reports it, and it is no failure. It is a failure if recoup's bits differ from those of plain runs.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from budgets import GIB, PAIRS, STEPS
from nets import net_named
from rows import report, settings
from torch import nn
from torch.utils.checkpoint import checkpoint
from training import Job, Pairs

import gpu
import recoup


class Checkpointed(nn.Module):
    """A block that torch.utils.checkpoint recomputes in the backward pass."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = checkpoint(self.block, x, use_reentrant=False)
        return found


def with_checkpoints(model: nn.Module, chains: tuple[str, ...]) -> nn.Module:
    for name in chains:
        chain: Any = model.get_submodule(name)
        for at, block in enumerate(list(chain)):
            chain[at] = Checkpointed(block)
    return model


def compiled(model: nn.Module, chains: tuple[str, ...], backend: str) -> nn.Module:
    """Compiles each block by itself; equal blocks share the result. The whole net takes minutes."""
    for name in chains:
        chain: Any = model.get_submodule(name)
        for block in chain:
            block.compile(backend=backend)
    return model


def way_of(name: str, chains: tuple[str, ...], tiny: bool) -> Callable[[nn.Module], nn.Module]:
    if name == "checkpoint":
        return partial(with_checkpoints, chains=chains)
    import torch._functorch.config as functorch_config

    functorch_config.activation_memory_budget = float(name.split()[1])
    torch._dynamo.config.recompile_limit = 64  # blocks of a ResNet have many shapes
    backend = "aot_eager_decomp_partition" if tiny else "inductor"
    return partial(compiled, chains=chains, backend=backend)


def peak_of(job: Job) -> int:
    """Peak by PyTorch's allocator on a GPU; for the double, which counts no peaks, of a budget."""
    if not gpu.is_real(job.device):
        return job.peak_bytes()
    job.plainly()  # compiles
    before = torch.cuda.memory_allocated(job.device)
    torch.cuda.reset_peak_memory_stats(job.device)
    job.plainly()
    return torch.cuda.max_memory_allocated(job.device) - before


def main() -> int:
    told = settings()
    device, tiny = gpu.open_device(told["device"]), told["rehearsal"]
    net, way = net_named(told["net"], tiny), told["way"]
    gpu.make_repeatable(net.repeatable)
    job = Job(net, device, 4 if tiny else STEPS, net.batch)
    other = replace(job, change=way_of(way, net.chains, tiny))
    plain_peak, other_peak = peak_of(job), peak_of(other)
    pairs = Pairs([], [])
    for at in range(PAIRS + 1):
        base, theirs = job.plainly(), other.plainly()
        if at > 0:
            pairs.plain.append(base.seconds)
            pairs.ours.append(theirs.seconds)
            bits = "equal" if base.digest == theirs.digest else "differ"
            share = other_peak / plain_peak
            report(way, bits=bits, **{"GiB": other_peak / GIB}, of_plain=share, **pairs.figures())
    return _in_that_memory(job, way, other_peak, plain_peak)


def _in_that_memory(job: Job, way: str, budget: int, plain_peak: int) -> int:
    plain = job.plainly()
    repeats = job.plainly().digest == plain.digest
    name = f"recoup in the memory of {way}"
    pairs = Pairs([], [])
    for at in range(PAIRS + 1):
        base = job.plainly()
        try:
            ours, _ = job.in_budget(budget)
        except recoup.OutOfBudgetError:
            report(name, **{"GiB": budget / GIB}, result="out of budget")
            return 0
        if ours.digest != plain.digest and repeats:
            print("bits of recoup differ from those of a plain training")
            return 1
        if at > 0:
            pairs.plain.append(base.seconds)
            pairs.ours.append(ours.seconds)
            bits = "equal" if ours.digest == plain.digest else "plain runs differ too"
            figures = {"GiB": budget / GIB, "of_plain": budget / plain_peak, **pairs.figures()}
            report(name, bits=bits, **figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
