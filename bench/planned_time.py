"""Compares the wall time of a step that follows its plan with that of a plain step.

    OMP_NUM_THREADS=1 python bench/planned_time.py --nets all --fractions 0.5 0.4 0.3

Each net is trained in turns plainly and in each fraction of its peak. The planner is waited for,
and the later half of the steps counts: plans are made in the earlier one. All results must be
bit-identical. A row is a net and a budget:

    plain       milliseconds of a plain step, median of all turns
    time        median time of a step in the budget, over that
    compute     time of the program's ops and of replays, over that of the program's ops
    over        time over compute: what the ops do not explain
    ops         ops of the program in a step; likewise replays, evictions, moves
    plans       times that a policy was asked for victims, which a plan makes unnecessary
    misplaced   blocks that were not where the plan has them
"""

import argparse
import statistics
import sys
from collections.abc import Iterator
from typing import Any

from measure import SEED, add_json, find, later_half, parser_of, write_result

import recoup
from recoup.bench.harness.tables import print_markdown
from recoup.bench.nets import NETS, Net
from recoup.bench.trial import record, run_steps

COUNTERS = (
    "op_ns", "replay_ns", "op_count", "replays", "evictions", "moves", "plans", "misplaced_blocks",
)  # fmt: skip


def measured(net: Net, peak: int, options: argparse.Namespace, fraction: float) -> dict[str, Any]:
    first = options.steps // 2
    plain: list[float] = []
    ours: list[float] = []
    for _ in range(options.rounds):
        expected = run_steps(net, options.steps, SEED)
        plain += expected.seconds[first:]
        with recoup.budget(int(fraction * peak), options=recoup.Options(planning="wait")) as run:
            trained, _, counted = later_half(net, options.steps, run, COUNTERS)
        ours += trained.seconds[first:]
        if trained.digests() != expected.digests():
            sys.exit(f"{net.name} in {fraction:.0%}: bits differ")
    time = statistics.median(ours) / statistics.median(plain)
    compute = 1 + counted["replay_ns"] / counted["op_ns"]
    return {
        "net": net.name, "fraction": fraction, "plain_ms": 1e3 * statistics.median(plain),
        "time": time, "compute": compute, "over": time / compute, **counted,
    }  # fmt: skip


COLUMNS = {
    "net": "{net} {fraction:.0%}",
    "plain": "{plain_ms:.1f}",
    "time": "{time:.3f}",
    "compute": "{compute:.3f}",
    "over": "{over:.3f}",
    "ops": "{op_count:,.0f}",
    "replays": "{replays:,.0f}",
    "evictions": "{evictions:,.0f}",
    "moves": "{moves:,.0f}",
    "plans": "{plans:,.0f}",
    "misplaced": "{misplaced_blocks:,.0f}",
}


def all_measured(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    names = [net.name for net in NETS] if options.nets == ["all"] else options.nets
    for name in names:
        net = find(name)
        peak = record(net, 2, SEED).unbudgeted_peak_bytes()
        for fraction in options.fractions:
            try:
                yield measured(net, peak, options, fraction)
            except recoup.OutOfBudgetError:
                print(f"{name} {fraction:.0%}: out of budget", file=sys.stderr)


def print_means(rows: list[dict[str, Any]]) -> None:
    for fraction in sorted({row["fraction"] for row in rows}, reverse=True):
        these = [row for row in rows if row["fraction"] == fraction]
        means = [
            f"{name} {statistics.geometric_mean(row[name] for row in these):.3f}"
            for name in ("time", "compute", "over")
        ]
        print(f"{fraction:.0%}, geometric means of {len(these)} nets: {', '.join(means)}")


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--nets", nargs="+", default=["gpt2"], help="`all`: those of recoup bench")
    parser.add_argument("--fractions", nargs="+", type=float, default=[0.5, 0.4, 0.3])
    parser.add_argument("--steps", type=int, default=14)
    parser.add_argument("--rounds", type=int, default=3)
    add_json(parser)
    options = parser.parse_args()
    if options.steps < 8:
        parser.error("fewer than 8 steps have no later half in which plans are followed")
    rows = list(print_markdown(COLUMNS, all_measured(options)))
    print_means(rows)
    write_result(options.json, "planned_time", rows)


if __name__ == "__main__":
    main()
