"""Schedules: plans made of one training step that control the following steps."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.optim.optimizer import _global_optimizer_post_hooks

import recoup
from command import cli_here

SCHEDULES = [policy.name for policy in recoup.policies() if policy.schedule]
DROPPING = [name for name in SCHEDULES if name not in ("budgeted", "rotor")]  # in any budget
HUGE = "1GiB"


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    layers: list[torch.nn.Module] = []
    for _ in range(6):
        layers += [torch.nn.Linear(64, 64), torch.nn.BatchNorm1d(64), torch.nn.ReLU()]
        layers.append(torch.nn.Dropout(0.1))
    return torch.nn.Sequential(*layers)


class Training:
    """Some layers, an optimizer, and data that differ in each step."""

    def __init__(self) -> None:
        self.net = network()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1, momentum=0.9)
        self.losses: list[float] = []

    def step(self, extra: Callable[[torch.Tensor], torch.Tensor] | None = None) -> None:
        torch.manual_seed(len(self.losses))
        out = self.net(torch.randn(256, 64))
        if extra is not None:
            out = extra(out)
        loss = out.square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.losses.append(loss.item())


def plain_losses(steps: int) -> list[float]:
    training = Training()
    for _ in range(steps):
        training.step()
    return training.losses


def test_the_schedules_of_the_literature_exist() -> None:
    assert SCHEDULES == [
        "sqrt-n", "recursive", "budgeted", "rotor", "mirror", "superneurons-speed",
        "superneurons-memory",
    ]  # fmt: skip


@pytest.mark.parametrize("policy", DROPPING)
def test_a_schedule_drives_the_steps_after_the_first(policy: str) -> None:
    training = Training()
    with recoup.budget(HUGE, policy=policy) as run:
        training.step()
        assert run.stats().evictions == 0
        counts = []
        for _ in range(4):
            before = run.stats()
            training.step()
            after = run.stats()
            counts.append((after.evictions - before.evictions, after.replays - before.replays))
        run.check()
    # The second step differs: it has momentum. From the third on, all are equal.
    assert counts[1] == counts[2] == counts[3]
    assert all(evictions > 0 and replays > 0 for evictions, replays in counts)
    assert training.losses == plain_losses(5)


@pytest.mark.parametrize("policy", SCHEDULES)
def test_schedules_in_a_tight_budget(policy: str) -> None:
    plain = Training()
    with recoup.budget(HUGE) as run:
        for _ in range(4):
            plain.step()
    budget = int(run.stats().peak_bytes * 0.7)
    training = Training()
    with recoup.budget(budget, policy=policy) as run:
        for _ in range(4):
            training.step()
        run.check()
    assert run.stats().peak_bytes <= budget
    assert run.stats().evictions > 0
    assert training.losses == plain.losses


@pytest.mark.parametrize("policy", SCHEDULES)
def test_the_policy_handles_a_step_that_differs(policy: str) -> None:
    training, plain = Training(), Training()
    extras = [None, None, torch.sin, None, torch.sin, torch.cos, None]
    for extra in extras:
        plain.step(extra)
    with recoup.budget(HUGE, policy=policy) as run:
        for extra in extras:
            training.step(extra)
        run.check()
    assert training.losses == plain.losses


def test_steps_without_an_optimizer_are_marked_explicitly() -> None:
    x = torch.randn(256, 64)

    def step() -> None:
        net(x).square().mean().backward()
        net.zero_grad()

    net = network()
    with recoup.budget(HUGE, policy="sqrt-n") as run:
        step()
        run.mark_step()
        step()
        assert run.stats().evictions > 0


def test_an_error_in_a_step_does_not_break_later_steps() -> None:
    training = Training()

    def fail(_: torch.Tensor) -> torch.Tensor:
        raise KeyError("no such thing")

    with recoup.budget(HUGE, policy="sqrt-n") as run:
        for _ in range(3):
            training.step()
        with pytest.raises(KeyError):
            training.step(fail)
        training.optimizer.zero_grad()
        training.step()
        training.step()
        run.check()
    assert all(torch.isfinite(parameter).all() for parameter in training.net.parameters())


def test_a_refused_scope_leaves_no_hook() -> None:
    before = len(_global_optimizer_post_hooks)
    with recoup.budget(HUGE), pytest.raises(RuntimeError), recoup.budget(HUGE, policy="sqrt-n"):
        pass
    assert len(_global_optimizer_post_hooks) == before


# ---- in the simulator ----


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traces") / "run.rtrace"
    training = Training()
    with recoup.trace(path):
        for _ in range(3):
            training.step()
    return path


@pytest.mark.parametrize("policy", DROPPING)
def test_plan_ahead_schedules_the_first_step(traced: Path, policy: str) -> None:
    trace = recoup.Trace.read(traced)
    peak = trace.unbudgeted_peak_bytes()
    live = trace.simulate(peak, recoup.SimulationOptions(policy=policy))
    ahead = trace.simulate(peak, recoup.SimulationOptions(policy=policy, plan_ahead=True))
    assert ahead.stats.peak_bytes < live.stats.peak_bytes
    assert ahead.stats.peak_bytes < 0.9 * peak
    assert ahead.stats.evictions > live.stats.evictions > 0


@pytest.mark.parametrize("policy", ["budgeted", "rotor"])
def test_budgeted_and_rotor_plan_for_the_budget(traced: Path, policy: str) -> None:
    trace = recoup.Trace.read(traced)
    peak = trace.unbudgeted_peak_bytes()
    ratios = [
        trace.simulate(
            int(peak * fraction),
            recoup.SimulationOptions(policy=policy, plan_ahead=True, layout=False),
        ).time_ratio
        for fraction in (1.0, 0.7, 0.5)
    ]
    assert ratios[0] == 1.0 < ratios[1] <= ratios[2] < 2.0


def test_the_command_shows_schedules_in_its_table(
    traced: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    shown = cli_here(
        capsys, "simulate", traced, "--policy", "dtr", "sqrt-n", "mirror", "--budgets", "100,80",
        "--plan-ahead", "--json", out,
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    assert "sqrt-n" in shown.stdout
    rows = json.loads(out.read_text())["rows"]
    assert [row["policy"] for row in rows] == ["dtr", "dtr", "sqrt-n", "sqrt-n", "mirror", "mirror"]
    assert rows[0]["time_ratio"] == pytest.approx(1, rel=0.01)
    assert rows[0]["time_ratio"] < rows[2]["time_ratio"]
