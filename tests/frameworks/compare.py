"""Training in a fraction of its peak compared with plain PyTorch: equal bits, with replays."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

import recoup

FRACTION = 0.6
PLENTY = "16GiB"
ROWS: list[tuple[str, recoup.Stats, int]] = []
"""Of each comparison: its name, what the run in the budget did, and the peak of the plain one."""


@dataclasses.dataclass
class Trained:
    """What a training leaves behind."""

    losses: list[float]
    weights: Mapping[str, torch.Tensor]
    """And all else that has to be equal, by name."""


def copies(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """So that nothing that is trained any further is among the results."""
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def losses_of(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, loader: Iterable[Any]
) -> list[float]:
    """Trains with each batch of the loader, as loops written by hand do."""
    losses = []
    for batch in loader:
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    return left.dtype == right.dtype and torch.equal(
        left.contiguous().view(-1).view(torch.uint8), right.contiguous().view(-1).view(torch.uint8)
    )


def assert_same(plain: Trained, other: Trained) -> None:
    assert len(plain.losses) > 0 and plain.losses == other.losses
    assert plain.weights.keys() == other.weights.keys() and plain.weights
    different = [n for n, w in plain.weights.items() if not same_bits(w, other.weights[n])]
    assert different == []


def assert_squeezed(name: str, stats: recoup.Stats, peak_bytes: int) -> None:
    """It was within the budget, and could not have been without recoup."""
    ROWS.append((name, stats, peak_bytes))
    assert stats.peak_bytes <= stats.budget_bytes < peak_bytes
    assert stats.evictions > 0 and stats.replays > 0


def peak_of(train: Callable[[], Trained]) -> int:
    """The most bytes of tensors that the training has at once when nothing is evicted."""
    with recoup.budget(PLENTY) as run:
        train()
    assert run.stats().evictions == 0
    return run.stats().peak_bytes


def check(name: str, train: Callable[[], Trained], fraction: float = FRACTION) -> recoup.Run:
    """Trains plain, measures the peak, and trains in the fraction of it."""
    plain = train()
    peak = peak_of(train)
    with recoup.budget(int(fraction * peak)) as run:
        squeezed = train()
    assert_same(plain, squeezed)
    assert_squeezed(name, run.stats(), peak)
    return run


def empty(folder: Path) -> Path:
    """The folder, which has nothing in it of an earlier training."""
    import shutil

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def table() -> list[str]:
    """The rows as Markdown."""
    head = "| training | peak | budget | peak in it | evictions | replays | replay time |"
    lines = [head, "|---|--:|--:|--:|--:|--:|--:|"]
    for name, stats, peak in ROWS:
        mib = [f"{n / 2**20:.1f} MiB" for n in (peak, stats.budget_bytes, stats.peak_bytes)]
        counts = [f"{stats.evictions:,}", f"{stats.replays:,}"]
        fraction = f"{100 * stats.replay_ns / stats.op_ns:.0f} %"
        lines.append(f"| {' | '.join([name, *mib, *counts, fraction])} |")
    return lines
