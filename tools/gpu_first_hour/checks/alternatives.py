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
from budgets import GIB, STEPS
from nets import net_named
from rows import report, settings
from torch import nn
from torch.utils.checkpoint import checkpoint
from training import PAIRS, Job, compare

import gpu
import recoup
from recoup.bench.blocks import Segment
from recoup.bench.harness.turns import Ratios, pairs


def with_checkpoints(model: nn.Module, chains: tuple[str, ...]) -> nn.Module:
    for name in chains:
        chain: Any = model.get_submodule(name)
        for at, block in enumerate(list(chain)):
            chain[at] = Segment([block], True, partial(checkpoint, use_reentrant=False))
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
    given = settings()
    device, tiny = gpu.open_device(given["device"]), given["rehearsal"]
    net, way = net_named(given["net"], tiny), given["way"]
    gpu.make_repeatable(net.repeatable)
    job = Job(net, device, 4 if tiny else STEPS, net.batch)
    other = replace(job, change=way_of(way, net.chains, tiny))
    plain_peak, other_peak = peak_of(job), peak_of(other)
    of_plain = other_peak / plain_peak
    ratios = Ratios()
    for base, theirs in pairs(PAIRS, job.plainly, lambda _: other.plainly()):
        ratios.add(base.seconds, theirs.seconds)
        bits = "equal" if base.digest == theirs.digest else "differ"
        figures = {"GiB": other_peak / GIB, "of_plain": of_plain, **ratios.figures()}
        report(way, bits=bits, **figures)
    name = f"recoup in the memory of {way}"
    try:
        for found in compare(job, other_peak):
            figures = {"GiB": other_peak / GIB, "of_plain": of_plain, **found.ratios.figures()}
            report(name, bits=found.bits, **figures)
    except recoup.OutOfBudgetError:
        report(name, **{"GiB": other_peak / GIB}, result="out of budget")
        return 0
    if found.differs:
        print("bits of recoup differ from those of a plain training")
    return int(found.differs)


if __name__ == "__main__":
    sys.exit(main())
