"""Alternatives, measured as policies are, and policies with the same memory as each alternative."""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import recoup
from recoup.bench.alternatives import Alternative, installed
from recoup.bench.harness.turns import Ratios, pairs
from recoup.bench.judge import judged_peak_bytes
from recoup.bench.nets import Net, net_named
from recoup.bench.rounds import run_compared, run_pairs
from recoup.bench.runner import Plan, Results
from recoup.bench.trial import Trial, compute_overhead, step_median, train


def policies_of(plan: Plan) -> list[str]:
    """The plan's policies, and the default one of a budget."""
    usual = inspect.signature(recoup.budget).parameters["policy"].default
    return [*plan.policies, *({usual} - {*plan.policies})]


def count(alternatives: list[Alternative], plan: Plan) -> int:
    """Maximum number of cases that `run_alternatives` announces."""
    rows = 1 + len(policies_of(plan))
    return len(plan.nets) * (1 + len(alternatives) * rows) if alternatives else 0


def run_alternatives(
    alternatives: list[Alternative], plan: Plan, results: Results, out: Path | None
) -> Iterator[str]:
    """Runs the cases that `results` lacks, and announces each for a progress bar."""
    rows = {(row["net"], row["alternative"]): row for row in results.alternatives}
    for name in plan.nets if alternatives else []:
        net = net_named(name)
        if name not in results.judged_peaks:
            yield f"{name}: peak"
            results.judged_peaks[name] = judged_peak_bytes(net, plan.steps, plan.seed)
        for alternative in alternatives:
            row = rows.get((name, alternative.name))
            if row is None:
                yield f"{name}, {alternative.name}"
                row = _row(net, alternative, plan, results.judged_peaks[name])
                results.alternatives.append(row)
                results.write(out)
            for policy in policies_of(plan) if row["status"] == "ok" else []:
                if policy not in row["ours"]:
                    yield f"{name}, {policy} in the memory of {alternative.name}"
                    row["ours"][policy] = _ours(net, policy, row["peak_bytes"], plan)
                    results.write(out)


def _row(net: Net, alternative: Alternative, plan: Plan, plain_peak: int) -> dict[str, Any]:
    row: dict[str, Any] = {"net": net.name, "alternative": alternative.name, "ours": {}}
    if not installed(alternative):
        reason = f"pip install {alternative.needs.replace('_', '-')}"
        return row | {"status": "not installed", "reason": reason}
    try:
        with alternative.around():
            return row | _measured(net, alternative, plan, plain_peak)
    except Exception as error:  # of any kind: the alternative failed
        reason = next(iter(str(error).strip().splitlines()), "")
        return row | {"status": "failed", "reason": f"{type(error).__name__}: {reason}"}


def _measured(net: Net, alternative: Alternative, plan: Plan, plain_peak: int) -> dict[str, Any]:
    """Alternates plain runs and runs of the alternative; the first pair warms up."""
    changed = alternative.change(net)
    ratios = Ratios()
    firsts: list[float] = []

    def run(_: Any) -> tuple[list[float], dict[str, str]]:
        seconds, bits = train(changed, plan.steps, plan.seed)
        firsts.append(seconds[0])
        return seconds, bits

    differs: list[str] = []
    for plain, ours in pairs(plan.rounds, lambda: train(net, plan.steps, plan.seed), run):
        ratios.add(step_median(plain[0]), step_median(ours[0]))
        differs = [part for part in ours[1] if ours[1][part] != plain[1][part]]
    peak = judged_peak_bytes(changed, plan.steps, plan.seed)
    return {
        "status": "ok",
        "note": alternative.note(),
        "peak_bytes": peak,
        "peak_fraction": peak / plain_peak,
        "time_ratio": ratios.median,
        "time_ratios": ratios.each,
        "first_seconds": firsts[0],
        "differs": differs,
    }


def _ours(net: Net, policy: str, budget: int, plan: Plan) -> dict[str, Any]:
    """Measures a policy in that budget. Raises BitsDifferError."""

    def ours(plain: Trial) -> Trial:
        return run_compared(net, plan.steps, plan.seed, budget, plain, policy=policy)

    try:
        ratios, stats = run_pairs(net, plan.steps, plan.seed, plan.rounds, ours)
    except recoup.OutOfBudgetError as error:
        return {"status": "out of budget", "reason": str(error).partition("\n")[0]}
    return {
        "status": "ok",
        "bits_equal": True,
        "time_ratio": ratios.median,
        "time_ratios": ratios.each,
        "compute_overhead": compute_overhead(stats),
        "stats": stats.to_dict(),
    }
