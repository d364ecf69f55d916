"""Runs every case of a plan once per round, each in a process of its own."""

import json
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from recoup.bench.harness.processes import call
from recoup.bench.real.results import Plan, Results
from recoup.bench.real.ways import CHECKPOINT, DEFAULT, Way, environment_of, is_installed
from recoup.bench.real.worker import Job
from recoup.bench.rounds import BitsDifferError
from recoup.bench.simulated import FEASIBLE_RATIO
from recoup.bench.trial import UNREACHED


def run_all(plan: Plan, results: Results, out: Path | None) -> Iterator[str]:
    """Runs the cases that `results` lacks; yields the result of each run and the remaining time.

    Raises BitsDifferError if recoup, or plain PyTorch, computes other results than plain PyTorch
    did first, and RuntimeError if a process fails.
    """
    _begin(plan, results)
    for number in range(plan.rounds):
        for net in plan.nets:
            cases = list(plan.cases(net))
            # Alternating order: a drift of the machine's speed affects all cases equally.
            for way, fraction in cases if number % 2 == 0 else reversed(cases):
                row = results.row(net, way.name, fraction)
                found = []
                if row["status"] == "ok" and len(row["runs"]) <= number:
                    found.append(_run(plan, results, way, row))
                if way in (DEFAULT, CHECKPOINT) and way.name not in results.peaks.get(net, {}):
                    found.append(_find_peak(plan, results, way, net))
                if found:
                    results.write(out)
                for what in found:
                    yield f"round {number + 1}, {net}, {what}{_left(plan, results)}"


def label(row: dict[str, Any]) -> str:
    """Name of the row's case among those of its net."""
    return row["way"] if row["fraction"] is None else f"{row['way']} in {100 * row['fraction']:g} %"


def step_seconds(run: dict[str, Any]) -> float:
    """The fastest step without the first, which warms up: some heaps still grow in the second."""
    return float(min(run["seconds"][1:] or run["seconds"]))


def _begin(plan: Plan, results: Results) -> None:
    """Makes the rows, and marks those whose library is missing as not installed."""
    rows = [row for net in plan.nets for row in results.rows_of(plan, net)]
    for way in filter(lambda way: way.library, plan.ways):
        there = is_installed(way)
        for row in rows:
            if row["way"] == way.name and not row["runs"]:
                row["status"] = "ok" if there else "not installed"
                row["note"] = "" if there else f"apt install {way.package}"


def _find_peak(plan: Plan, results: Results, way: Way, net: str) -> str:
    """Finds the peak bytes of tensors, as recoup counts them in a budget that it never reaches."""
    job = Job(net, plan.steps, plan.seed, way.checkpoints, UNREACHED)
    found = _call(job, way, None)
    if way == DEFAULT:
        _check(net, "in all memory", results.differ(net, found["digests"]))
    peak = results.peaks.setdefault(net, {})[way.name] = found["charged_bytes"]
    return f"{way.name}: {peak / 1e9:.2f} GB of tensors"


def _check(net: str, what: str, differ: list[str]) -> None:
    if differ:
        raise BitsDifferError(f"{net}, {what}: bits differ from plain PyTorch: {', '.join(differ)}")


def _run(plan: Plan, results: Results, way: Way, row: dict[str, Any]) -> str:
    """Adds a run to the row, or sets the reason why it cannot have one."""
    net = row["net"]
    if way.budget:
        row["budget_bytes"] = int(row["fraction"] * results.peaks[net][DEFAULT.name])
    tier = {"spill": plan.spill, "spill_dir": plan.spill_dir} if way.tier else {}
    job = Job(net, plan.steps, plan.seed, way.checkpoints, row.get("budget_bytes"), **tier)
    start = time.perf_counter()
    found = _call(job, way, _patience(results, way, net))
    wall = time.perf_counter() - start
    if found["status"] != "ok":
        row |= found
        return f"{label(row)}: {row['status']}"
    found.pop("status")
    row["differs"] = results.differ(net, found.pop("digests"))
    if way == DEFAULT or way.budget:
        _check(net, label(row), row["differs"])
    row["runs"].append({**found, "wall_seconds": wall})
    return f"{label(row)}: {step_seconds(found):.2f} s a step"


def _patience(results: Results, way: Way, net: str) -> float | None:
    """Seconds after which a process is too slow, relative to plain PyTorch; None: no limit."""
    row = results.row(net, DEFAULT.name, None)
    if way == DEFAULT or not row["runs"]:
        return None
    return FEASIBLE_RATIO * statistics.median(_walls([row]))


def _call(job: Job, way: Way, patience: float | None) -> dict[str, Any]:
    """The worker's output. Raises RuntimeError if it fails."""
    command = [sys.executable, "-m", "recoup.bench.real.worker", json.dumps(asdict(job))]
    ended = call(command, patience, environment_of(way))
    if ended.status is None:
        return {"status": "too slow", "note": f"more than {FEASIBLE_RATIO:g} times plain PyTorch"}
    if ended.status < 0:
        name = ended.signal_name
        raise RuntimeError(f"{job.net}, {way.name}: ended by {name}, possibly for lack of memory")
    if ended.status > 0:
        raise RuntimeError(f"{job.net}, {way.name}: failed: {ended.reason}")
    return ended.result()


def _left(plan: Plan, results: Results) -> str:
    """Estimate of the remaining time, in words: by runs of the case, of its net, or of all."""
    by_net = {net: _walls(results.rows_of(plan, net)) for net in plan.nets}
    of_all = [wall for walls in by_net.values() for wall in walls]
    seconds = 0.0
    for net in plan.nets:
        for row in results.rows_of(plan, net):
            if row["status"] == "ok" and len(row["runs"]) < plan.rounds:
                known = _walls([row]) or by_net[net] or of_all
                seconds += (plan.rounds - len(row["runs"])) * statistics.mean(known)
    return f"; about {seconds / 60:.0f} min left"


def _walls(rows: list[dict[str, Any]]) -> list[float]:
    """Wall time of each run, in seconds."""
    return [run["wall_seconds"] for row in rows for run in row["runs"]]
