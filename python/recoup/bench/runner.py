"""Measures nets under policies and budgets, and adds each case to a file of results."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch

import recoup
from recoup.bench.harness import results as harness
from recoup.bench.nets import net_named
from recoup.bench.rounds import CASES, run_round, timed
from recoup.bench.simulated import layout_row, least_budget, whole_budget
from recoup.bench.trial import record, run_plainly


@dataclass(frozen=True)
class Plan:
    """The cases to run."""

    nets: list[str]
    policies: list[str]
    fractions: list[float]
    """Budgets as fractions of each net's unbudgeted peak."""
    steps: int = 4
    rounds: int = 3
    """Number of rounds; each runs a case once, between two plain runs."""
    seed: int = 0
    device: str = "cpu"

    def cases(self) -> Iterator[tuple[str, str, float]]:
        """(net, policy, fraction) in the order in which they run."""
        for net in self.nets:
            for policy in self.policies:
                for fraction in self.fractions:
                    yield net, policy, fraction


@dataclass
class Results(harness.Results):
    """All results so far."""

    command: ClassVar[str] = "recoup bench"
    rows: list[dict[str, Any]] = field(default_factory=list)
    """A row per case. `status` is None until all rounds have run, or one round decides the case:
    then "ok", "out of budget" or "too slow"."""
    least: list[dict[str, Any]] = field(default_factory=list)
    peaks: dict[str, int] = field(default_factory=dict)
    """Unbudgeted peak by net, in bytes."""
    alternatives: list[dict[str, Any]] = field(default_factory=list)
    """A row for each net and alternative that is done, with one for each policy in it."""
    judged_peaks: dict[str, int] = field(default_factory=dict)
    """As `peaks`, measured by the judge of the alternatives."""
    whole: dict[str, int | None] = field(default_factory=dict)
    """Least budget without evictions by net, in bytes; None: above twice the peak."""

    def rows_of(self, plan: Plan, net: str | None = None) -> list[dict[str, Any]]:
        """Existing rows of the plan's cases, of that net if one is given."""
        known = {(row["net"], row["policy"], row["fraction"]): row for row in self.rows}
        return [known[c] for c in plan.cases() if c in known and net in (None, c[0])]

    def lacks(self, plan: Plan, net: str) -> bool:
        """Whether a case of the plan with that net is not finished."""
        wanted = len(plan.policies) * len(plan.fractions)
        return sum(row["status"] is not None for row in self.rows_of(plan, net)) < wanted

    def rounds_done(self, plan: Plan) -> int:
        """Number of rounds done, over all cases of the plan; a finished case counts in full."""
        return sum(
            plan.rounds if row["status"] else len(row["time_ratios"]) for row in self.rows_of(plan)
        )


def settings_of(plan: Plan) -> dict[str, Any]:
    """Settings that all results in one file must share."""
    return {
        "steps": plan.steps,
        "rounds": plan.rounds,
        "seed": plan.seed,
        **harness.versions(),
        **({} if plan.device == "cpu" else {"device": _described(plan.device)}),
    }


def _described(device: str) -> str:
    if device == "cpu":
        return device
    return str(getattr(torch, torch.device(device).type).get_device_name(device))


def open_results(path: Path | None, plan: Plan) -> Results:
    """The results in the file, to be continued, or new ones.

    Raises ValueError if the file is no result file or was measured with other settings.
    """
    return Results.open(path, settings_of(plan))


def recorded(name: str, plan: Plan) -> recoup.Trace:
    """The trace of a net's training, after one run that warms up."""
    net = net_named(name, plan.device)
    run_plainly(net, plan.steps, plan.seed)
    return record(net, plan.steps, plan.seed)


def run_all(plan: Plan, results: Results, out: Path | None) -> Iterator[str]:
    """Runs the cases that `results` lacks, and announces each for a progress bar."""
    for name in plan.nets:
        if not results.lacks(plan, name):
            continue
        yield f"{name}: recording"
        trace = recorded(name, plan)
        peak = results.peaks.setdefault(name, trace.unbudgeted_peak_bytes())
        if name not in results.whole:
            results.whole[name] = whole_budget(trace, peak)
        for policy in plan.policies:
            yield f"{name}, {policy}: simulating"
            _simulate(trace, name, policy, peak, plan, results)
        results.write(out)
        yield f"{name}: plain"
        net = net_named(name, plan.device)
        plain = timed(run_plainly, net, plan.steps, plan.seed)
        while group := [row for row in results.rows_of(plan, name) if not row["status"]][:CASES]:
            plain = yield from run_round(net, plan.steps, plan.seed, group, plain)
            for row in group:
                if not row["status"] and len(row["time_ratios"]) == plan.rounds:
                    row["status"] = "ok"
            results.write(out)


def _simulate(
    trace: recoup.Trace, name: str, policy: str, peak: int, plan: Plan, results: Results
) -> None:
    """Adds the least budget, and a row for each case that has none."""
    if not any((row["net"], row["policy"]) == (name, policy) for row in results.least):
        least = least_budget(trace, policy, peak)
        results.least.append({"net": name, "policy": policy, "budget_bytes": least})
    known = {(row["policy"], row["fraction"]) for row in results.rows_of(plan, name)}
    for fraction in plan.fractions:
        if (policy, fraction) in known:
            continue
        budget = max(1, int(fraction * peak))
        layout = layout_row(trace, policy, budget)
        row = {
            "net": name, "policy": policy, "fraction": fraction, "budget_bytes": budget,
            "layout": layout, "status": None, "time_ratios": [],
        }  # fmt: skip
        if layout["status"] == "too slow":
            row |= {"status": "too slow", "reason": "in simulation"}
        results.rows.append(row)
