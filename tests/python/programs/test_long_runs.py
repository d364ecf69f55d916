"""Long runs: neither metadata nor the process grow, and bits stay those of plain PyTorch."""

import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import recoup
from differential import assert_same, see

STEPS = 1_000
EARLY = 300  # by this step, a leak shows, and warm-up is over
CARRIED_STEPS = 10_000
METADATA = 1 << 20


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.BatchNorm1d(32), nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.up(self.norm(x)), inplace=True)
        return F.dropout(self.down(y), 0.1).add_(x)


def make_net() -> nn.Module:
    """A net with running statistics, noise and in-place writes, which trains fast."""
    return nn.Sequential(*[Block() for _ in range(6)], nn.Linear(32, 10))


def train(steps: int, at_step: Callable[[int], None] = lambda step: None) -> list[Any]:
    torch.manual_seed(0)
    net = make_net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, foreach=True)
    losses = torch.zeros(())
    for step in range(steps):
        loss = F.cross_entropy(net(torch.randn(256, 32)), torch.arange(256) % 10)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses += loss.detach()
        at_step(step + 1)
    return see([losses, net.state_dict(), optimizer.state_dict()])


def resident_set_bytes() -> int:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_a_thousand_steps_at_60_percent() -> None:
    with recoup.budget("256MiB") as run:
        train(3)
    budget_bytes = int(0.6 * run.stats().peak_bytes)

    seen: dict[int, tuple[recoup.Stats, int]] = {}

    def look(step: int) -> None:
        if step in (EARLY, STEPS):
            run.check()
            seen[step] = run.stats(), resident_set_bytes()

    with recoup.budget(budget_bytes) as run:
        watched = train(STEPS, look)
    assert_same(train(STEPS), watched, "at the end")

    (early, early_rss), (late, late_rss) = seen[EARLY], seen[STEPS]
    assert early.replays > EARLY and late.replays > STEPS, "there was no pressure"
    # The policy measures times, so two steps may leave different records.
    for gauge in ("live_ops", "live_values", "resident_bytes"):
        assert getattr(late, gauge) <= 1.25 * getattr(early, gauge), gauge
    # The memory of records is kept: a step with other evictions may once need more of it. One more
    # record in each step would exceed the limit.
    assert late.metadata_bytes <= max(1.25 * early.metadata_bytes, METADATA)
    assert late.lineage_depth_max < 1.25 * early.lineage_depth_max
    assert late.peak_bytes <= budget_bytes
    assert late_rss - early_rss < 8 << 20


def carry(steps: int, how: str, at_step: Callable[[int], None] = lambda step: None) -> list[Any]:
    """Carries a recurrent state from step to step, as in typical programs."""
    torch.manual_seed(0)
    cell = nn.GRUCell(32, 32)
    weight = torch.randn(32, 32) / 8
    state = torch.zeros(16, 32)
    optimizer = torch.optim.SGD(cell.parameters(), lr=1e-3)
    for step in range(steps):
        x = torch.randn(16, 32)
        if how == "no_grad":
            with torch.no_grad():
                state = (state @ weight + x).tanh()
        elif how == "in place":
            state.mul_(0.9).add_(x, alpha=0.1)
        else:
            state = cell(x, state.detach())
            state.square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        at_step(step + 1)
    return see([state, cell.state_dict()])


@pytest.mark.parametrize("how", ["no_grad", "in place", "trained"])
def test_a_state_carried_across_ten_thousand_steps(how: str) -> None:
    seen: dict[int, recoup.Stats] = {}

    def look(step: int) -> None:
        if step in (CARRIED_STEPS // 2, CARRIED_STEPS):
            run.check()
            seen[step] = run.stats()

    with recoup.budget("1MiB") as run:
        watched = carry(CARRIED_STEPS, how, look)
    assert_same(carry(CARRIED_STEPS, how), watched, "at the end")

    half, end = seen.values()
    # A lineage that grew in every step would have at least two ops for each step, and twice as
    # many at the end as halfway. Growth and cuts below a bound are fine: bound_ops is far below
    # the number of all ops.
    bound_ops = 12_000
    for stats in (half, end):
        assert stats.live_ops < bound_ops
        assert stats.live_values < 3 * bound_ops
        assert stats.lineage_depth_max <= bound_ops
        assert stats.replay_depth_max <= bound_ops
        assert stats.metadata_bytes < 16 << 20


def test_an_evicted_carried_state_is_rematerialized() -> None:
    """Cuts of the lineage bound the replay, however long the history is."""
    with recoup.budget("16MiB") as run:
        state = torch.zeros(1024)
        for step in range(CARRIED_STEPS):
            state = (state + 0.001).tanh()
            if step % 1000 == 999:
                evicted = recoup.evict(state)
                before = run.stats().replays
                total = state.sum()
                assert run.stats().replays > before or not evicted
                assert run.stats().replays - before <= 10_001
    want = torch.zeros(1024)
    for _ in range(CARRIED_STEPS):
        want = (want + 0.001).tanh()
    assert torch.equal(state, want) and torch.equal(total, want.sum())
