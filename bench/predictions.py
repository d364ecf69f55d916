"""Compares the predictions of `recoup suggest` with runs: the peak and the time of a step.

    OMP_NUM_THREADS=1 python bench/predictions.py [--nets gpt2 ...] [--json predictions.json]

A net is trained once while a trace is recorded, and without recoup before and after that: the mean
of both runs is the time of a step without recoup, because the machine's speed drifts. For each
fraction of that trace's peak the time of a step is predicted as `recoup suggest --time-plain` does.
Then the net is trained in that budget and without recoup, alternately. Prints a table in Markdown:
the predicted ratio of a step's time to that without recoup, the median ratio of the pairs and their
range, and the peak. Bits are compared in every run. A prediction is right if it is within 5 % of
the median or within the range of the pairs.
"""

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure import SEED, add_json, find, parser_of, write_result

import recoup
from recoup.bench.harness.tables import print_markdown
from recoup.bench.nets import NETS, Net
from recoup.bench.rounds import run_compared, run_pairs
from recoup.bench.trial import Trial, record, run_in, train
from recoup.offline.overheads import measure_overheads
from recoup.offline.suggestions import Predictor

FRACTIONS = [0.8, 0.6, 0.5, 0.4]
NEAR = 0.05


@dataclass(frozen=True)
class Recorded:
    """A net, and the predictor made from its recording."""

    name: str
    net: Net
    predictor: Predictor
    steps: int


def recorded(name: str, steps: int) -> Recorded:
    net = find(name)
    train(net, 1, SEED)  # warms up
    before = train(net, steps, SEED)[0]
    with tempfile.TemporaryDirectory() as folder:
        overheads = measure_overheads(Path(folder) / "overheads.rtrace")
    trace = record(net, steps, SEED)
    after = train(net, steps, SEED)[0]
    plain = [round(5e8 * sum(both)) for both in zip(before, after, strict=True)]
    predictor = Predictor(trace, overheads=overheads, plain_steps_ns=plain)
    return Recorded(name, net, predictor, steps)


def measured(run: Recorded, fraction: float, rounds: int) -> dict[str, Any]:
    peak = run.predictor.peak_bytes
    budget = int(fraction * peak)
    predicted = run.predictor.predict(f"{budget}B")
    row: dict[str, Any] = {
        "net": run.name, "fraction": fraction, "budget_bytes": budget, "peak_bytes": peak,
        "predicted": predicted.status, "predicted_ratio": predicted.time_ratio,
    }  # fmt: skip

    def live(plain: Trial) -> Trial:
        return run_compared(run.net, run.steps, SEED, budget, plain, planning="wait")

    try:
        ratios, _ = run_pairs(run.net, run.steps, SEED, rounds, live)
    except recoup.OutOfBudgetError:
        unknown = dict.fromkeys(("median", "least", "most", "off_by", "unbudgeted_peak_bytes"))
        right = predicted.status == "out of budget"
        return row | unknown | {"live": "out of budget", "is_right": right}
    whole = run_in(run.net, run.steps, SEED, 2 * peak)
    assert whole.stats is not None
    guess = predicted.time_ratio if predicted.status == "ok" else None
    least, most = min(ratios.each), max(ratios.each)
    off_by = None if guess is None else guess / ratios.median - 1
    return row | {
        "live": "ok", "unbudgeted_peak_bytes": whole.stats.peak_bytes, "ratios": ratios.each,
        "median": ratios.median, "least": least, "most": most, "off_by": off_by,
        "is_right": guess is not None and (abs(off_by) <= NEAR or least <= guess <= most),
    }  # fmt: skip


COLUMNS = {
    "net": "{net}",
    "budget": "{fraction:.0%}",
    "size": "{budget_bytes:,.1fMB}",
    "predicted": "{predicted}",
    "its time": "{predicted_ratio:.3f}",
    "measured": "{live}",
    "time": "{median:.3f}",
    "range": "{least:.3f} to {most:.3f}",
    "off by": "{off_by:+.1%}",
    "peak": "{unbudgeted_peak_bytes:,} of {peak_bytes:,}",
    "right": "{is_right}",
}


def all_measured(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for name in options.nets:
        run = recorded(name, options.steps)
        for fraction in options.fractions:
            yield measured(run, fraction, options.rounds)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--nets", nargs="+", default=[net.name for net in NETS])
    parser.add_argument("--fractions", nargs="+", type=float, default=FRACTIONS)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    add_json(parser)
    options = parser.parse_args()
    rows = print_markdown(COLUMNS, all_measured(options))
    print(f"\n{sum(row['is_right'] for row in rows)} of {len(rows)} predictions are right")
    write_result(options.json, "predictions", rows)


if __name__ == "__main__":
    main()
