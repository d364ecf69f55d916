"""How well a simulation tells what a run does: bytes, compute and wall time in smaller budgets.

    OMP_NUM_THREADS=1 python bench/predictions.py [--nets gpt2 ...] [--out predictions.json]

A net is trained once while a trace is recorded. For each share of the peak of that trace the trace
is simulated, and the net is trained in that budget and in one where nothing is evicted, by turns.
Prints a table in Markdown: peak and compute ratio, simulated and live, and the wall time of the
pairs, with its range. Bits are compared in every run.
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import recoup
from recoup.bench.nets import NETS, Net, net_named
from recoup.bench.nets.real import real_net_named
from recoup.bench.trial import Trial, record, run_in, train

SHARES = [0.8, 0.6, 0.5, 0.4]


def find(name: str) -> Net:
    """`real:gpt2` is of published size."""
    kind, _, real = name.rpartition(":")
    return real_net_named(real).net if kind == "real" else net_named(name)


def compute_ratio(stats: recoup.Stats) -> float:
    """As `Simulation.time_ratio`, of a live run."""
    return (stats.op_ns + stats.replay_cost_ns) / stats.op_ns


def measured(name: str, share: float, steps: int, rounds: int, trace: recoup.Trace) -> Any:
    net = find(name)
    peak = trace.unbudgeted_peak_bytes()
    budget = int(share * peak)
    simulated = trace.simulate(budget)
    row: dict[str, Any] = {
        "net": name, "share": share, "budget_bytes": budget, "peak_bytes": peak,
        "simulated": simulated.status, "simulated_ratio": simulated.time_ratio,
        "simulated_peak_bytes": simulated.stats.peak_bytes,
    }  # fmt: skip
    live, whole = [], []
    for _ in range(rounds):
        whole.append(run_in(net, steps, 0, 2 * peak))
        try:
            live.append(run_in(net, steps, 0, budget))
        except recoup.OutOfBudgetError:
            return row | {"live": "out of budget"}
        if live[-1].digest != whole[-1].digest:
            raise SystemExit(f"{name} in {budget} bytes: other bits")
    ratios = [one.step_seconds / other.step_seconds for one, other in zip(live, whole, strict=True)]
    return row | {
        "live": "ok",
        "unbudgeted_peak_bytes": stats_of(whole[0]).peak_bytes,
        "live_peak_bytes": stats_of(live[0]).peak_bytes,
        "live_ratio": statistics.median(compute_ratio(stats_of(trial)) for trial in live),
        "wall": ratios,
    }


def stats_of(trial: Trial) -> recoup.Stats:
    assert trial.stats is not None
    return trial.stats


def line(row: dict[str, Any]) -> str:
    head = f"| {row['net']} | {row['share']:.0%} | {row['budget_bytes'] / 2**20:.1f} | "
    if row["live"] != "ok":
        return head + f"{row['simulated']} | {row['live']} | | | | |"
    predicted, live = row["simulated_ratio"], row["live_ratio"]
    wall = sorted(row["wall"])
    exact = "exact" if row["unbudgeted_peak_bytes"] == row["peak_bytes"] else "differs"
    return head + (
        f"{predicted:.3f} | {live:.3f} | {100 * (predicted / live - 1):+.1f} % | {exact} | "
        f"{statistics.median(wall):.3f} | {wall[0]:.3f} to {wall[-1]:.3f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nets", nargs="+", default=[net.name for net in NETS])
    parser.add_argument("--shares", nargs="+", type=float, default=SHARES)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    print("| net | budget | MiB | simulated | live | off by | peak | wall | range |")
    print("|---|---|---|---|---|---|---|---|---|")
    rows = []
    for name in options.nets:
        net = find(name)
        train(net, 1, 0)  # warms up
        with tempfile.TemporaryDirectory() as folder:
            trace = record(net, options.steps, 0, Path(folder) / "run.rtrace")
        for share in options.shares:
            rows.append(measured(name, share, options.steps, options.rounds, trace))
            print(line(rows[-1]), flush=True)
    if options.out:
        options.out.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
