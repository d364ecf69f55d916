"""Simulations with noisy measurements, as on a busy machine."""

from pathlib import Path

import pytest

import recoup
from command import cli_here, refused
from recoup.bench.nets.tiny import net_named
from train import HUGE, train, variant_named


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> recoup.Trace:
    path = tmp_path_factory.mktemp("noise") / "run.rtrace"
    train(net_named("char_gpt"), variant_named("plain"), 3, HUGE, "recoup", trace=path)
    return recoup.Trace.read(path)


def test_noise_changes_decisions_but_not_costs(trace: recoup.Trace) -> None:
    budget = trace.unbudgeted_peak_bytes() // 2
    clean = trace.simulate(budget, decisions=True)
    runs = [
        trace.simulate(budget, recoup.SimulationOptions(noise=(seed, 50)), decisions=True)
        for seed in (1, 1, 2)
    ]
    assert runs[0].decisions == runs[1].decisions  # of the same seed
    assert len({tuple(run.decisions) for run in (clean, runs[0], runs[2])}) == 3
    for run in runs:
        assert run.plain_cost_ns == clean.plain_cost_ns
        assert run.stats.op_ns != clean.stats.op_ns  # the engine's estimates
        assert run.replay_cost_ns > 0


def test_noise_is_unbiased(trace: recoup.Trace) -> None:
    step = trace.step()  # without warm-up, which may be most of the time
    beliefs = [
        step.simulate(1 << 40, recoup.SimulationOptions(noise=(seed, 30))).stats.op_ns
        for seed in range(16)
    ]
    plain = step.simulate(1 << 40).stats.op_ns
    assert abs(sum(beliefs) / 16 / plain - 1) < 0.25


def test_the_command_takes_noise(
    trace: recoup.Trace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.rtrace"
    trace.write(path)
    shown = cli_here(capsys, "simulate", path, "--budgets", "60", "--noise", "3:40")
    assert shown.returncode == 0, shown.stderr
    for wrong in ("40", "x:40", "1:-1", "1:201", "1:nan"):
        assert "must be SEED:PERCENT" in refused(capsys, "simulate", path, "--noise", wrong)
    counted = ("--noise", "1:10", "--option", "cost_model=bytes")
    assert "measured" in refused(capsys, "simulate", path, *counted)
    with pytest.raises(ValueError, match="200 percent"):
        trace.simulate(1 << 40, recoup.SimulationOptions(noise=(1, 1e9)))
