"""A second tier on a disk: the same bits in budgets below what training keeps in any case."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import recoup

STEPS = 3
WIDTH = 256

OPTIMIZERS = {
    "adamw": lambda parameters: torch.optim.AdamW(parameters, 1e-3),
    "amsgrad": lambda parameters: torch.optim.Adam(parameters, 1e-3, amsgrad=True),
    "momentum": lambda parameters: torch.optim.SGD(parameters, 0.1, momentum=0.9),
    "lion-like": lambda parameters: torch.optim.RMSprop(parameters, 1e-3, centered=True),
}


def train(optimizer: str = "adamw") -> list[str]:
    """Of a net whose state is most of what it needs; all that it leaves, to the bit."""
    torch.manual_seed(0)
    layers = [layer for _ in range(5) for layer in (nn.Linear(WIDTH, WIDTH), nn.GELU())]
    model = nn.Sequential(*layers)
    steps = OPTIMIZERS[optimizer](model.parameters())
    chance = torch.Generator().manual_seed(1)
    left = []
    for _ in range(STEPS):
        loss = model(torch.randn(32, WIDTH, generator=chance)).square().mean()
        steps.zero_grad()
        loss.backward()
        steps.step()
        left.append(loss.item().hex())
    for values in (model.parameters(), *(state.values() for state in steps.state.values())):
        left += [float(value.double().sum()).hex() for value in values]
        left += [float((value * 3 + 1).double().square().sum()).hex() for value in values]
    return left


def peak_of(optimizer: str) -> int:
    with recoup.budget("1GiB") as run:
        train(optimizer)
    return run.stats().peak_bytes


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_below_the_floor(optimizer: str) -> None:
    plain = train(optimizer)
    peak = peak_of(optimizer)
    budget = peak // 4  # parameters, gradients and state are more than half of the peak
    with pytest.raises(recoup.OutOfBudgetError), recoup.budget(budget):
        train(optimizer)
    with recoup.budget(budget, spill="1GiB") as run:
        assert train(optimizer) == plain
    stats = run.stats()
    assert stats.peak_bytes <= budget
    assert stats.spills >= stats.fetches > 0
    assert 0 < stats.spill_peak_bytes <= 1 << 30
    assert "spills" in run.report()


@pytest.mark.parametrize(
    "options",
    [
        {"evict_after_op": True},
        {"verify": True},
        {"inplace": "copy"},
        {"usefulness": False},
        {"policy": "lru"},
        {"policy": "coop"},
        {"policy": "dtr", "replay_order": "recursive"},
        {"policy": "random"},
    ],
)
def test_every_switch(options: dict[str, Any]) -> None:
    plain = train()
    with recoup.budget(peak_of("adamw") // 3, spill="1GiB", **options) as run:
        assert train() == plain
    assert run.stats().spills > 0


def test_nothing_is_written_where_there_is_room() -> None:
    with recoup.budget("1GiB", spill="1GiB") as run:
        train()
    stats = run.stats()
    assert (stats.spills, stats.spilled_bytes, stats.spill_peak_bytes) == (0, 0, 0)


def test_the_end_of_a_scope_fetches_what_lives() -> None:
    torch.manual_seed(0)
    plain = [torch.randn(1 << 18) for _ in range(8)]
    torch.manual_seed(0)
    with recoup.budget("4MiB", spill="64MiB") as run:
        made = [torch.randn(1 << 18) for _ in range(8)]
        run.grow("32MiB")
    assert all(torch.equal(a, b) for a, b in zip(plain, made, strict=True))


def test_what_does_not_fit_at_the_end_says_so_and_can_be_finished() -> None:
    run = recoup.budget("4MiB", spill="64MiB")
    torch.manual_seed(0)
    made = []
    with (
        pytest.raises(recoup.OutOfBudgetError, match="alive at the end of the scope"),
        run as scope,
    ):
        made += [torch.randn(1 << 18) for _ in range(8)]
    scope.finish("32MiB")
    torch.manual_seed(0)
    assert all(torch.equal(a, torch.randn(1 << 18)) for a in made)


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import resource, sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import test_spill as t, recoup\n"
        "plain, peak = t.train(), t.peak_of('adamw')\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))\n"
        "with recoup.budget(peak * 19 // 20, spill='1GiB') as run:\n"
        "    assert t.train() == plain\n"
        "print(run.stats().spill_peak_bytes <= 1 << 20)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300)
    assert done.stdout == "True\n", done.stderr


def test_the_file_has_no_name(tmp_path: Path) -> None:
    with recoup.budget(peak_of("adamw") // 3, spill="64MiB", spill_dir=tmp_path) as run:
        train()
        assert run.stats().spills > 0
        assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"spill": "1GiB", "spill_dir": "/no/such/folder"}, RuntimeError, "/no/such/folder"),
        ({"spill": 0}, ValueError, "spill must be"),
        ({"spill": "a lot"}, ValueError, "spill must be"),
    ],
)
def test_wrong_arguments(options: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises((error, OSError), match=says), recoup.budget("64MiB", **options):
        pass


def test_a_simulation_has_one_too(tmp_path: Path) -> None:
    path = tmp_path / "run.rtrace"
    with recoup.budget("1GiB", trace=path):
        train()
    trace = recoup.Trace.read(path)
    budget = trace.unbudgeted_peak_bytes() // 5
    assert trace.simulate(budget).status == "out of budget"
    tiered = trace.simulate(budget, spill="1GiB")
    assert tiered.status == "ok" and tiered.stats.spills > 0
    assert tiered.spill_cost_ns > 0 and tiered.time_ratio > 1
