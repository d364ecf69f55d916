"""Copies of side results of an op: its first run makes them, and its replays do not.

A batch normalization also updates running statistics. The engine copies the statistics
before the kernel runs, so that a kernel that runs out of memory can start again. A simulation that
made these copies in a replay would place the blocks of later ops elsewhere than the live run.
"""

import random
from pathlib import Path

import pytest
import torch
from torch import nn

import recoup
from recoup.offline.trace_steps import changed, numbers_of

OPTIONS = recoup.Options(cost_model="bytes", planning="wait")


def train(seed: int) -> list[torch.Tensor]:
    choose = random.Random(seed)
    torch.manual_seed(seed)
    width, batch = choose.choice([64, 128]), choose.choice([64, 256, 400])
    others = (nn.GELU, nn.Tanh, nn.Dropout)
    layers: list[nn.Module] = [nn.Linear(width, width), nn.BatchNorm1d(width)]
    for _ in range(choose.randint(3, 6)):
        other = choose.choice(others)()
        layers += [nn.Linear(width, width), choose.choice([other, nn.BatchNorm1d(width)])]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.Adam(model.parameters())
    kept = []
    for _ in range(3):
        y = torch.randn(batch, width)
        for layer in layers:
            y = layer(y)
            if choose.random() < 0.3:
                kept.append(y)
        y.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        del kept[:-3]
    return kept


def without_copies(trace: recoup.Trace) -> recoup.Trace:
    return changed(trace, op_copies=[0] * trace.op_count)


def recorded(path: Path, seed: int) -> recoup.Trace:
    train(seed)  # PyTorch makes some objects only in the first call
    with recoup.trace(path):
        kept = train(seed)
    del kept
    return recoup.Trace.read(path)


def decisions_of(trace: recoup.Trace, budget: int) -> list[recoup.Decision] | None:
    return trace.simulate(
        budget,
        recoup.SimulationOptions(max_time_ratio=0, plan_ahead=False, **vars(OPTIONS)),
        decisions=True,
    ).decisions


def test_the_copies_of_an_op_are_recorded(tmp_path: Path) -> None:
    trace = recorded(tmp_path / "run.rtrace", 0)
    names = [op.name for op in trace.ops()]
    copies = dict(zip(names, numbers_of(trace)["op_copies"], strict=True))
    assert {name: n for name, n in copies.items() if n > 0} == {"aten::native_batch_norm": 2}


def test_replays_make_no_copies_in_a_simulation(tmp_path: Path) -> None:
    changed = 0
    for seed in (9, 15, 17):
        trace = recorded(tmp_path / "run.rtrace", seed)
        stripped = without_copies(trace)
        budget = trace.unbudgeted_peak_bytes() * 80 // 100
        with recoup.budget(budget, profile="decisions", options=OPTIONS) as run:
            kept = train(seed)
        del kept
        live = run.decisions()
        assert decisions_of(trace, budget) == live, seed
        changed += decisions_of(stripped, budget) != live
    assert changed > 0, "no program shows the copies"


def test_more_copies_than_allocations_are_refused(tmp_path: Path) -> None:
    trace = recorded(tmp_path / "run.rtrace", 0)
    with pytest.raises(ValueError, match="it makes 99 copies, but its kernel has"):
        changed(trace, op_copies=[99] * trace.op_count)
