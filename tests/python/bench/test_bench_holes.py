"""How `bench/budgets.py holes` evaluates the budgets that it tried."""

import sys
from pathlib import Path

import pytest

import recoup
from recoup.bench.nets import net_named
from recoup.bench.trial import record

sys.path.append(str(Path(__file__).parents[3] / "bench"))

from budgets import (
    FAILURES,
    Attempt,
    holes_of,
    lived,
    print_holes,
    print_nets,
    print_rises,
    rises_of,
    row_of,
    scan,
    simulated,
    summary,
)


def attempts(ratios: dict[int, float | None]) -> list[Attempt]:
    return [
        Attempt(percent, 10 * percent, ratio, "" if ratio else "no room")
        for percent, ratio in ratios.items()
    ]


def test_a_scan_ends_below_the_least_budget() -> None:
    tried = []

    def attempt(percent: int) -> Attempt:
        tried.append(percent)
        runs = percent >= 60 and percent != 77
        return Attempt(percent, percent, 1.0 if runs else None)

    found = scan(attempt)
    assert [one.percent for one in found] == list(range(60, 101))
    assert tried == list(range(100, 59 - FAILURES, -1))
    assert [hole.percent for hole in holes_of(found)] == [77]


def test_a_scan_in_which_no_budget_runs() -> None:
    assert scan(lambda percent: Attempt(percent, percent, None)) == []
    assert scan(lambda percent: Attempt(percent, percent, 1.0))[0].percent == 1


def test_rises_are_relative_to_the_fastest_smaller_budget() -> None:
    found = rises_of(
        attempts(
            {20: 3.0, 21: 3.2, 22: None, 23: 2.0, 24: 2.3, 25: 2.2, 26: 2.5, 27: 1.0, 28: 1.11}
        )
    )
    assert [(rise.smaller.percent, rise.larger.percent, rise.count) for rise in found] == [
        (23, 26, 2),
        (27, 28, 1),
    ]
    assert found[0].ratio == pytest.approx(1.25)
    assert rises_of([]) == []


def test_the_tables(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        row_of("a", False, 1000, attempts({20: 2.0, 21: None, 22: 3.0})),
        row_of("b", True, 1000, attempts(dict.fromkeys(range(1, 101), 1.0))),
        row_of("c", False, 1000, []),
    ]
    print_nets(rows)
    print_holes(rows)
    print_rises(rows)
    shown = capsys.readouterr().out
    assert "b, live" in shown and "no room" in shown and "1.50x" in shown
    assert summary(rows) == (
        "103 budgets: 1 holes, at most 1 in 30; 1 take over 10% longer than a smaller one"
    )
    assert "more than 1 in 30" in summary(rows[:1])


def test_a_trace_is_scanned_in_simulation(tmp_path: Path) -> None:
    path = tmp_path / "bilstm.rtrace"
    trace = record(net_named("bilstm"), 1, 0, path)
    peak, found = simulated(path, {"policy": "dtr", "cost_model": "bytes"})
    assert peak == trace.unbudgeted_peak_bytes()
    assert (found[-1].percent, found[-1].budget_bytes) == (100, peak)
    assert found[-1].time_ratio == pytest.approx(1, rel=0.01)
    least = found[0]
    assert least.percent + len(found) - 1 == 100
    result = trace.simulate(
        least.budget_bytes, recoup.SimulationOptions(policy="dtr", cost_model="bytes")
    )
    assert isinstance(result, recoup.Simulation) and result.time_ratio == least.time_ratio
    below = trace.simulate(
        peak * (least.percent - 1) // 100,
        recoup.SimulationOptions(policy="dtr", cost_model="bytes"),
    )
    assert below.status != "ok"


def test_a_training_is_scanned_live(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("budgets.scan", lambda attempt: [attempt(20), attempt(60), attempt(100)])
    peak, (too_small, tight, ample) = lived("bilstm", {"cost_model": "bytes"})
    assert ample.budget_bytes == peak
    assert too_small.time_ratio is None and too_small.cause
    assert ample.time_ratio is not None and tight.time_ratio is not None
    assert 1 <= ample.time_ratio < tight.time_ratio
