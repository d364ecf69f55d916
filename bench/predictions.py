"""Compares the predictions of `recoup suggest` with runs: the peak and the time of a step.

    OMP_NUM_THREADS=1 python bench/predictions.py [--nets gpt2 ...] [--out predictions.json]

A net is trained once while a trace is recorded, and without recoup before and after that: the mean
of both runs is the time of a step without recoup, because the machine's speed drifts. For each
share of that trace's peak the time of a step is predicted as `recoup suggest --time-plain` does.
Then the net is trained in that budget and without recoup, alternately. Prints a table in Markdown:
the predicted ratio of a step's time to that without recoup, the median ratio of the pairs and their
range, and the peak. Bits are compared in every run. A prediction is right if it is within 5 % of
the median or within the range of the pairs.
"""

import argparse
import json
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import recoup
from recoup.bench.nets import NETS, Net, net_named
from recoup.bench.nets.real import real_net_named
from recoup.bench.trial import record, run_in, run_plainly, train
from recoup.offline.overheads import measure_overheads
from recoup.offline.suggestions import Predictor

SHARES = [0.8, 0.6, 0.5, 0.4]
NEAR = 0.05


def find(name: str) -> Net:
    """The net of that name; `real:gpt2` is one of published size."""
    kind, _, real = name.rpartition(":")
    return real_net_named(real).net if kind == "real" else net_named(name)


@dataclass(frozen=True)
class Recorded:
    """A net, and the predictor made from its recording."""

    name: str
    net: Net
    predictor: Predictor
    steps: int


def recorded(name: str, steps: int) -> Recorded:
    net = find(name)
    train(net, 1, 0)  # warms up
    before = train(net, steps, 0)[0]
    with tempfile.TemporaryDirectory() as folder:
        overheads = measure_overheads(Path(folder) / "overheads.rtrace")
        trace = record(net, steps, 0, Path(folder) / "run.rtrace")
        after = train(net, steps, 0)[0]
        plain = [round(5e8 * sum(both)) for both in zip(before, after, strict=True)]
        predictor = Predictor(trace, overheads=overheads, plain_steps_ns=plain)
    return Recorded(name, net, predictor, steps)


def measured(run: Recorded, share: float, rounds: int) -> dict[str, Any]:
    peak = run.predictor.peak_bytes
    budget = int(share * peak)
    predicted = run.predictor.predict(f"{budget}B")
    row: dict[str, Any] = {
        "net": run.name, "share": share, "budget_bytes": budget, "peak_bytes": peak,
        "predicted": predicted.status, "predicted_ratio": predicted.time_ratio,
    }  # fmt: skip
    ratios = []
    for _ in range(rounds):
        plain = run_plainly(run.net, run.steps, 0)
        try:
            live = run_in(run.net, run.steps, 0, budget, planning="wait")
        except recoup.OutOfBudgetError:
            return row | {"live": "out of budget"}
        if live.digest != plain.digest:
            raise SystemExit(f"{run.name} in {budget} bytes: other bits")
        ratios.append(live.step_seconds / plain.step_seconds)
    whole = run_in(run.net, run.steps, 0, 2 * peak)
    assert whole.stats is not None
    return row | {
        "live": "ok",
        "unbudgeted_peak_bytes": whole.stats.peak_bytes,
        "ratios": ratios,
    }


def is_right(row: dict[str, Any]) -> bool:
    if row["live"] != "ok" or row["predicted"] != "ok":
        return bool(row["live"] == row["predicted"])
    predicted, ratios = row["predicted_ratio"], row["ratios"]
    near = abs(predicted / statistics.median(ratios) - 1) <= NEAR
    return near or min(ratios) <= predicted <= max(ratios)


def line(row: dict[str, Any]) -> str:
    head = f"| {row['net']} | {row['share']:.0%} | {row['budget_bytes'] / 2**20:.1f} | "
    right = "yes" if is_right(row) else "no"
    if row["live"] != "ok" or row["predicted"] != "ok":
        return head + f"{row['predicted']} | {row['live']} | | | | {right} |"
    predicted, ratios = row["predicted_ratio"], sorted(row["ratios"])
    median = statistics.median(ratios)
    exact = "exact" if row["unbudgeted_peak_bytes"] == row["peak_bytes"] else "differs"
    return head + (
        f"{predicted:.3f} | {median:.3f} | {ratios[0]:.3f} to {ratios[-1]:.3f} | "
        f"{100 * (predicted / median - 1):+.1f} % | {exact} | {right} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nets", nargs="+", default=[net.name for net in NETS])
    parser.add_argument("--shares", nargs="+", type=float, default=SHARES)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    print("| net | budget | MiB | predicted | measured | range | off by | peak | right |")
    print("|---|---|---|---|---|---|---|---|---|")
    rows = []
    for name in options.nets:
        run = recorded(name, options.steps)
        for share in options.shares:
            rows.append(measured(run, share, options.rounds))
            print(line(rows[-1]), flush=True)
    print(f"\n{sum(map(is_right, rows))} of {len(rows)} predictions are right")
    if options.out:
        options.out.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
