"""Nets under policies and budgets: what is measured of each case, and a file that grows with it."""

import json
import os
import platform
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

import recoup
from recoup.bench.nets import Net, net_named
from recoup.bench.trial import record, run_in, run_plainly
from recoup.files import write_atomically

FEASIBLE_RATIO = 10.0
"""A run that takes more than that many times its plain op time counts as infeasible."""
LEAST_STEP = 0.01
"""Of the peak: how fine the least budget is."""


@dataclass(frozen=True)
class Plan:
    """What is run."""

    nets: list[str]
    policies: list[str]
    shares: list[float]
    """Budgets, of each net's unbudgeted peak."""
    steps: int = 4
    pairs: int = 3
    seed: int = 0

    def cases(self) -> Iterator[tuple[str, str, float]]:
        """(net, policy, share) in the order in which they run."""
        for net in self.nets:
            for policy in self.policies:
                for share in self.shares:
                    yield net, policy, share


@dataclass
class Results:
    """All that is known so far. `rows` and `least` have a row for each case that is done."""

    settings: dict[str, Any]
    rows: list[dict[str, Any]] = field(default_factory=list)
    least: list[dict[str, Any]] = field(default_factory=list)
    peaks: dict[str, int] = field(default_factory=dict)
    """Unbudgeted, by net."""
    alternatives: list[dict[str, Any]] = field(default_factory=list)
    """A row for each net and alternative that is done, with one for each policy in it."""
    judged_peaks: dict[str, int] = field(default_factory=dict)
    """As `peaks`, as the judge of the alternatives sees them."""

    def has(self, net: str, policy: str, share: float) -> bool:
        return any(
            (row["net"], row["policy"], row["share"]) == (net, policy, share) for row in self.rows
        )

    def write(self, path: Path) -> None:
        write_atomically(path, json.dumps({"benchmark": "bench", **asdict(self)}, indent=1) + "\n")


def settings_of(plan: Plan) -> dict[str, Any]:
    """What two results must share to stand in one file."""
    return {
        "steps": plan.steps,
        "pairs": plan.pairs,
        "seed": plan.seed,
        "recoup": recoup.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }


def open_results(path: Path | None, plan: Plan) -> Results:
    """Those of the file, to be gone on with, or new ones.

    Raises ValueError when the file is something else, or was measured in another way.
    """
    settings = settings_of(plan)
    if path is None or not path.exists():
        return Results(settings)
    try:
        found = json.loads(path.read_text())
        if found.pop("benchmark") != "bench":
            raise KeyError
        results = Results(**found)
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"{path} is no result of `recoup bench`") from None
    for name, value in settings.items():
        if results.settings.get(name) != value:
            raise ValueError(
                f"{path} was measured with {name} = {results.settings.get(name)}, not {value}; "
                "give another --out"
            )
    return results


def run_case(net: Net, policy: str, share: float, plan: Plan, peak: int) -> dict[str, Any]:
    """Pairs of a plain and a budgeted run that take turns, after one that warms up."""
    budget = int(share * peak)
    row: dict[str, Any] = {
        "net": net.name, "policy": policy, "share": share, "budget_bytes": budget
    }  # fmt: skip
    ratios: list[float] = []
    stats: recoup.Stats | None = None
    for index in range(plan.pairs + 1):
        plain = run_plainly(net, plan.steps, plan.seed)
        try:
            trial = run_in(net, plan.steps, plan.seed, budget, policy=policy)
        except recoup.OutOfBudgetError as error:
            return row | {"status": "out of budget", "reason": str(error).partition("\n")[0]}
        if trial.digest != plain.digest:
            raise RuntimeError(f"{net.name} under {policy} in {budget:,} bytes: bits differ")
        if index > 0:
            ratios.append(trial.step_seconds / plain.step_seconds)
        stats = trial.stats
    assert stats is not None
    overhead = (stats.op_ns + stats.replay_cost_ns) / stats.op_ns
    return row | {
        "status": "ok" if overhead <= FEASIBLE_RATIO else "too slow",
        "bits_equal": True,
        "time_ratio": statistics.median(ratios),
        "time_ratios": ratios,
        "compute_overhead": overhead,
        "search_share": stats.search_ns / stats.op_ns,
        "bookkeeping_share": stats.bookkeeping_ns / stats.op_ns,
        "fragmentation": stats.fragmentation,
        "stats": stats.to_dict(),
    }


def least_budget(trace: recoup.Trace, policy: str, peak: int) -> int | None:
    """The least one that runs in simulation, to 1 % of the peak; found by bisection.

    None when not even the peak is enough.
    """

    def runs(percent: int) -> bool:
        result = trace.simulate(
            max(1, peak * percent // 100), policy=policy, max_time_ratio=FEASIBLE_RATIO
        )
        return result.status == "ok"

    low, high = 0, 100
    if not runs(high):
        return None
    step = max(1, round(100 * LEAST_STEP))
    while high - low > step:
        middle = (low + high) // 2
        low, high = (low, middle) if runs(middle) else (middle, high)
    return peak * high // 100


def run_all(plan: Plan, results: Results, out: Path | None) -> Iterator[str]:
    """Runs what `results` does not have yet; says each case that begins, for a progress bar."""
    for name in plan.nets:
        net = net_named(name)
        yield f"{name}: recording"
        with tempfile.TemporaryDirectory() as folder:
            trace = record(net, plan.steps, plan.seed, Path(folder) / "run.rtrace")
        peak = results.peaks.setdefault(name, trace.unbudgeted_peak_bytes())
        for policy in plan.policies:
            known = {(row["net"], row["policy"]) for row in results.least}
            if (name, policy) not in known:
                least = least_budget(trace, policy, peak)
                results.least.append({"net": name, "policy": policy, "budget_bytes": least})
            for share in plan.shares:
                yield f"{name}, {policy}, {share:.0%}"
                if not results.has(name, policy, share):
                    results.rows.append(run_case(net, policy, share, plan, peak))
                    if out is not None:
                        results.write(out)
