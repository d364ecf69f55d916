"""A training for some steps, plain or in a budget: its time, and a digest of its results."""

import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from nets import Net
from torch import Tensor, nn

import gpu
import recoup
from recoup._memory.device_memory import free_bytes, outside_bytes
from recoup.bench.harness.turns import Ratios, pairs
from recoup.bench.trial import call_in

PAIRS = 5
CHUNK = 1 << 20  # elements that are digested at a time
PLAIN_DIFFER = "plain runs differ too"
"""Two plain trainings have different bits, so those of another training cannot be judged."""
WARM_FRACTION = 0.5
"""Fraction of the steps that warm up; a plan is made after the third equal one."""


Step = Callable[[], Tensor]
"""A step of a training, which returns its loss."""


@dataclass(frozen=True)
class Trained:
    """Result of a training."""

    seconds: float
    """Median time of a step after warm-up."""
    digest: int
    """Digest of losses, parameters, buffers, gradients and optimizer state, to the bit."""


@dataclass(frozen=True)
class Job:
    """The parameters of a training."""

    net: Net
    device: torch.device
    steps: int
    batch: int
    foreach: bool = True
    """Whether the optimizer updates all parameters in one op."""
    capturable: bool = False
    """Whether the optimizer's step can be part of a CUDA graph."""
    change: Callable[[nn.Module], nn.Module] = lambda model: model
    """Changes the model before the training."""
    around: Callable[[Step], Step] = lambda step: step
    """Changes how a step is run."""
    before: Callable[[int], None] = lambda step: None
    """Called with the number of each step, from 0, before it starts, and after the last one."""

    def train(self) -> Trained:
        torch.manual_seed(0)
        with self.device:
            model = self.net.make().train()
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=1e-4, foreach=self.foreach, capturable=self.capturable
        )
        run = self.around(partial(self._step, self.change(model), optimizer))
        seconds, losses = [], []
        for step in range(self.steps):
            self.before(step)
            start = time.perf_counter()
            losses.append(run().item())
            gpu.synchronize(self.device)
            seconds.append(time.perf_counter() - start)
        self.before(self.steps)
        counted = seconds[int(WARM_FRACTION * len(seconds)) :]
        return Trained(statistics.median(counted), _digest(tensors_left(model, optimizer), losses))

    def _step(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> Tensor:
        loss = self.net.loss(model, self.batch, self.device)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    def plainly(self) -> Trained:
        gpu.module(self.device).empty_cache()
        return self.train()

    def in_budget(self, budget: int, **options: Any) -> tuple[Trained, recoup.Stats]:
        """Trains in a budget plus the memory in use on the device. Raises OutOfBudgetError."""
        budget += outside_bytes(self.device)
        return call_in(budget, self.train, device=self.device, **options)

    def peak_bytes(self) -> int:
        """Peak bytes of a training with ample memory, whose bits are those of a plain one."""
        outside = outside_bytes(self.device)
        ample = int(0.95 * (free_bytes(self.device) - outside))
        _, stats = self.in_budget(ample)
        return stats.peak_bytes - stats.external_bytes


def spill_of(tiny: bool) -> str:
    """Size of pinned memory for a spill tier: at most half of the host's memory."""
    if tiny:
        return "64MiB"
    host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{min(32 << 10, (host >> 20) // 2)}MiB"


def tensors_left(model: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[Tensor]:
    """All tensors that a training changes."""
    for parameter in model.parameters():
        yield parameter
        if parameter.grad is not None:
            yield parameter.grad
    yield from model.buffers()
    for state in optimizer.state.values():
        yield from (value for value in state.values() if isinstance(value, Tensor))


def _digest(tensors: Iterable[Tensor], losses: list[float]) -> int:
    """A digest of bits, computed on the tensors' device, since copies to the host take seconds.

    Sums the bits modulo 2**64, with weights that depend on the position. Weights are odd, so the
    change of any single bit changes the sum.
    """
    found = hash(tuple(losses))
    for tensor in tensors:
        found = hash((found, _sum(tensor)))
    return found


@torch.no_grad()
def _sum(tensor: Tensor) -> int:
    bits = tensor.detach().contiguous().reshape(-1)
    bits = bits.view({2: torch.int16, 4: torch.int32}.get(bits.element_size(), torch.uint8))
    total = torch.zeros((), dtype=torch.int64, device=bits.device)
    for part in bits.split(CHUNK):
        weights = torch.arange(part.numel(), dtype=torch.int64, device=bits.device)
        weights.mul_(2 * 2_654_435_761).add_(1)
        total = total * 1_000_003 + (part.to(torch.int64) * weights).sum()
    return int(total.item())


def comparison(same: bool, repeats: bool) -> str:
    """The bits' comparison, in words.

    repeats: whether two plain trainings have equal bits.
    """
    return "equal" if same else "differ" if repeats else PLAIN_DIFFER


@dataclass
class Compared:
    """Trainings in a budget, compared with plain ones that alternate with them."""

    repeats: bool
    """Whether two plain trainings have equal bits; otherwise the budget's cannot be judged."""
    same: bool
    """Whether the bits in the budget are those of a plain training."""
    ratios: Ratios
    stats: recoup.Stats

    @property
    def bits(self) -> str:
        """The bits' comparison, in words."""
        return comparison(self.same, self.repeats)

    @property
    def differs(self) -> bool:
        """Whether recoup has changed bits."""
        return self.repeats and not self.same


def compare(job: Job, budget: int, rounds: int = PAIRS, **options: Any) -> Iterator[Compared]:
    """Compares `rounds` pairs, and yields what is known after each. Raises OutOfBudgetError."""
    plain = job.plainly()
    repeats = job.plainly().digest == plain.digest
    digests = {plain.digest}
    ratios = Ratios()

    def ours(_: Trained) -> tuple[Trained, recoup.Stats]:
        trained, stats = job.in_budget(budget, **options)
        digests.add(trained.digest)
        return trained, stats

    for base, (trained, stats) in pairs(rounds, job.plainly, ours):
        ratios.add(base.seconds, trained.seconds)
        yield Compared(repeats, len(digests) == 1, ratios, stats)
