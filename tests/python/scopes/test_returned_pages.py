"""A model that was made before the scope costs no page faults in steady steps."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

import recoup

WIDTH, ROWS, DEPTH = 512, 2048, 8


def make() -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(DEPTH)]
    return nn.Sequential(*layers)


def train(model: nn.Module, steps: int, after_step: Callable[[], None]) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(steps):
        loss = model(torch.ones(ROWS, WIDTH)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        del loss
        after_step()
    return losses


def peak_bytes() -> int:
    with recoup.budget("4GiB") as run:
        train(make(), 3, lambda: None)
    return run.stats().peak_bytes


@pytest.mark.parametrize("fraction", [1.0, 0.8, 0.6])
def test_steady_steps_give_few_pages_back(fraction: float) -> None:
    plain = train(make(), 6, lambda: None)
    budget = int(fraction * peak_bytes())
    given_back: list[int] = []
    model = make()
    with recoup.budget(budget) as run:
        found = train(model, 6, lambda: given_back.append(run.stats().given_back_bytes))
        model.zero_grad()
    assert found == plain
    assert run.stats().peak_bytes <= budget
    # The pages of blocks that fitted nowhere else.
    assert given_back[-1] - given_back[2] <= 3 * budget // 8, given_back
