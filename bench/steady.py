"""Compares a steady training with a spill tier to the bound of the periodic integer program.

    OMP_NUM_THREADS=1 python bench/steady.py --nets wide bilstm mlp cnn --fractions 0.7 0.6 0.5 0.4

Each net is trained for 16 steps, and each op of the later steps gets its median cost. A run is
simulated in each fraction of the peak, with a tier of 0.8 GB/s. Prints a table in Markdown: the
bound, whether it is proved to be that of the program, and for each policy the time ratio of the
later half of the steps over the bound. python/recoup/offline/optimum_steady.py has the bound's
note.
"""

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

from measure import PROGRAM_NAMES, add_json, parser_of, write_result
from yardsticks import SMALL, recorded

import recoup
from recoup.bench.harness.tables import print_markdown
from recoup.offline.graph import TierPrice
from recoup.offline.optimum_steady import steady_bound, with_median_costs
from recoup.offline.trace_steps import first_steps

STEPS = 16
# Policy, and whether values have addresses.
RUNS = {
    "recoup": ("recoup", False),
    "recoup, at addresses": ("recoup", True),
    "planned, at addresses": ("planned", True),
    "oracle": ("oracle", False),
    "largest": ("largest", False),
}


def late_ratio(
    traces: Sequence[recoup.Trace], budget: int, policy: str, *, layout: bool
) -> float | None:
    """Time ratio of the steps of the second trace that the first does not have; None: out of
    budget."""
    early, late = (
        trace.simulate(
            budget,
            recoup.SimulationOptions(policy=policy, layout=layout, max_time_ratio=0, spill="1TiB"),
        )
        for trace in traces
    )
    if early.status != "ok" or late.status != "ok":
        return None
    plain, *costs = (
        getattr(late, name) - getattr(early, name)
        for name in ("plain_cost_ns", "replay_cost_ns", "spill_cost_ns")
    )
    return 1 + sum(costs) / plain


def row_of(
    name: str, traces: Sequence[recoup.Trace], fraction: float, time_limit: float
) -> dict[str, Any]:
    step = traces[-1].step()
    budget = int(step.unbudgeted_peak_bytes() * fraction)
    found = steady_bound(step, budget, TierPrice(), time_limit=time_limit)
    ratios = {
        label: late_ratio(traces, budget, policy, layout=layout)
        for label, (policy, layout) in RUNS.items()
    }
    over = {
        label: None if None in (ratio, found.bound) else ratio / found.bound
        for label, ratio in ratios.items()
    }
    return {
        "net": name, "fraction": fraction, "budget_bytes": budget, "bound": found.bound,
        "proved": found.proved, "seconds": found.seconds, "values": found.values, "ratios": ratios,
        "over_bound": over,
    }  # fmt: skip


COLUMNS = {
    "net": "{net} {fraction:.0%}",
    "bound": "{bound:.3f}",
    "proved": "{proved}",
    **{run: f"{{over_bound[{run}]:.3f}}" for run in RUNS},
}


def all_rows(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for name in options.nets:
        trace = with_median_costs(recorded(name, STEPS))
        traces = [first_steps(trace, STEPS // 2), trace]
        for fraction in options.fractions:
            yield row_of(name, traces, fraction, options.time_limit)


def main() -> None:
    parser = parser_of(__doc__)
    nets = [*SMALL, *PROGRAM_NAMES]
    default = ["wide", "bilstm", "mlp", "cnn"]
    parser.add_argument("--nets", nargs="+", default=default, choices=nets, metavar="NET")
    parser.add_argument("--fractions", nargs="+", type=float, default=[0.7, 0.6, 0.5, 0.4])
    parser.add_argument("--time-limit", type=float, default=60.0, metavar="SECONDS")
    add_json(parser)
    options = parser.parse_args()
    rows = print_markdown(COLUMNS, all_rows(options))
    write_result(options.json, "steady", rows)


if __name__ == "__main__":
    main()
