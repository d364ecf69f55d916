"""`make bench-smoke`: every policy on two small nets, interrupted and resumed. No times."""

import json
import math
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import recoup
from command import cli
from recoup.bench import plots, runner

NETS = ("unet", "bilstm")
POLICIES = [policy.name for policy in recoup.policies()]
FRACTIONS = (0.7,)
ARGUMENTS = (
    "bench", "--nets", *NETS, "--policies", "all", "--budgets", "70", "--steps", "2",
    "--rounds", "1",
)  # fmt: skip
COLUMNS = (
    "policy", "least", "budget", "time", "compute", "search", "reclaim", "moves", "alloc",
    "replays", "depth", "chain", "peak", "evictions", "moved", "layout cost", "scatter",
    "fragmented", "without",
)  # fmt: skip
NUMBERS = (
    "time_ratio", "compute_overhead", "search_fraction", "bookkeeping_fraction", "move_fraction",
    "allocator_fraction", "fragmentation", "scatter",
)  # fmt: skip


def rows_of(out: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(out.read_text())["rows"] if out.exists() else []
    return [row for row in rows if row["status"] is not None]


def interrupt_after_some(out: Path) -> list[dict[str, Any]]:
    """Sends Ctrl-C once some cases are done; returns the rows in the file."""
    command = [sys.executable, "-m", "recoup", *ARGUMENTS, "--out", str(out)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        while not rows_of(out) and running.poll() is None:
            time.sleep(0.2)
        running.send_signal(signal.SIGINT)
        _, said = running.communicate()
    assert running.returncode == 130, said
    assert f"interrupted; {out} has the results so far" in said and said.count("\n") == 1
    return rows_of(out)


def check(row: dict[str, Any]) -> None:
    case = (row["net"], row["policy"], row["fraction"])
    assert row["status"] in ("ok", "too slow"), case
    if "stats" not in row:
        return
    assert row["bits_equal"] is True, case
    assert len(row["time_ratios"]) == 1, case
    assert all(math.isfinite(row[name]) and row[name] >= 0 for name in NUMBERS), case
    assert row["compute_overhead"] >= 1 and row["fragmentation"] < 1 and row["scatter"] < 1, case
    stats = recoup.Stats(**row["stats"])
    assert stats.peak_bytes <= row["budget_bytes"], case
    assert stats.replay_depth_max <= stats.replays, case
    assert row["layout"].keys() == {
        "status", "status_without", "scatter", "cost", "time_ratio", "fragmentation_without",
    }, case  # fmt: skip


def test_bench_smoke(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    kept = interrupt_after_some(out)
    assert 0 < len(kept) < len(NETS) * len(POLICIES) * len(FRACTIONS)

    shown = cli(*ARGUMENTS, "--out", out)
    assert shown.returncode == 0, shown.stderr
    rows = rows_of(out)
    assert [row for row in rows if row in kept] == kept  # these did not run again
    cases = {(row["net"], row["policy"], row["fraction"]) for row in rows}
    assert cases == {(n, p, s) for n in NETS for p in POLICIES for s in FRACTIONS}
    assert len(rows) == len(cases)
    for row in rows:
        check(row)
    least = json.loads(out.read_text())["least"]
    assert {(row["net"], row["policy"]) for row in least} == {(n, p) for n, p, _ in cases}
    assert all(column in shown.stdout for column in COLUMNS), shown.stdout

    done = out.read_bytes()
    plot = tmp_path / "plot.svg"
    again = cli(*ARGUMENTS, "--out", out, "--plot", plot)
    assert again.returncode == 0, again.stderr
    assert again.stdout == shown.stdout and out.read_bytes() == done
    plan = runner.Plan([*NETS], POLICIES, [*FRACTIONS], steps=2, rounds=1)
    results = runner.Results(settings={}, rows=rows)
    for kind in plots.PLOTS:
        plots.draw(plan, results, plot, kind)
        assert all(f"<!-- {name} " in plot.read_text() for name in (*NETS, *POLICIES))
