"""Programs without an optimizer: spilled values are read ahead as soon as their ops repeat."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import recoup

pytestmark = pytest.mark.serial  # a thread of pytest-xdist would prevent the import of weights

WIDTH = 192
LAYERS = 12
BUDGET = 7 << 20
"""About half of the models."""


class Layer(nn.Module):
    """Attention to a growing cache, and a hidden layer."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.wide, self.narrow = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.keys = self.values = torch.empty(0, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.keys = torch.cat([self.keys, self.key(x)])
        self.values = torch.cat([self.values, self.value(x)])
        weights = (self.query(x) @ self.keys.t()).softmax(-1)
        x = x + self.out(weights @ self.values)
        return x + self.narrow(torch.relu(self.wide(x)))


def decoder() -> nn.Sequential:
    return nn.Sequential(*(Layer() for _ in range(LAYERS)))


def generate(model: nn.Sequential) -> list[str]:
    """Each token is the output for the one before."""
    x = torch.ones(1, WIDTH)
    outputs = []
    for _ in range(12):
        x = torch.tanh(model(x))
        outputs.append(x.double().sum().item().hex())
    return outputs


CHANCE = torch.Generator().manual_seed(0)
BATCHES = [torch.randn(8 + batch % 3, 384, generator=CHANCE) for batch in range(12)]


def classifier() -> nn.Sequential:
    layers = [layer for _ in range(2 * LAYERS) for layer in (nn.Linear(384, 384), nn.Tanh())]
    return nn.Sequential(*layers)


def evaluate(model: nn.Sequential) -> list[str]:
    """Batches from outside the scope, as those of a loader."""
    return [model(batch).double().sum().item().hex() for batch in BATCHES]


@pytest.mark.parametrize(("make", "use"), [(decoder, generate), (classifier, evaluate)])
@torch.no_grad()
def test_weights_are_read_while_ops_run(
    make: Callable[[], nn.Sequential],
    use: Callable[[nn.Sequential], list[str]],
    tmp_path: Path,
) -> None:
    torch.manual_seed(0)
    plain = use(make())
    stats = {}
    for planning in ("off", "background"):
        torch.manual_seed(0)
        model = make()
        options = recoup.Options(planning=planning)
        with recoup.budget(BUDGET, spill="1GiB", spill_dir=tmp_path, options=options) as run:
            assert use(model) == plain
            del model  # all of it would not fit at the end
        stats[planning] = run.stats()
        assert run.stats().peak_bytes <= BUDGET
    assert stats["off"].fetched_ahead_bytes == 0 < stats["off"].fetched_bytes
    planned = stats["background"]
    assert planned.fetched_ahead_bytes > planned.fetched_bytes / 4
    assert planned.fetched_bytes < stats["off"].fetched_bytes
