"""Compares policies and schedules on the same traces, in simulation: the cost of a budget.

    python bench/traces.py policies runs/*.rtrace dtr-logs/*.log.gz
    python bench/traces.py schedules TRACE...

policies   A pool has as many addresses as the budget has bytes, so free memory can be fragmented,
           except for `recoup,no-addresses`. All policies score every candidate; `coop-chain` is
           `coop` with its chain cost, `:published` one of `recoup.PRESETS`. Per policy, over all
           traces:

           time    geometric mean of the time ratio (ops and replays over ops), over the traces that
                   work under every policy in that part of the peak; a ratio above 10 is too slow
           runs    number of traces that work
           least   mean least fraction of the peak in steps of 2 %, by bisection

           and in the budgets that work under every policy

           visited         candidates inspected for evictions
           moved           bytes moved, over bytes evicted
           fragmentation   mean fraction of the budget that is free after an allocation that needed
                           evictions

           and last, the distance of each policy from the best one: the number of traces in which it
           is at most 1 % slower, by budget, and the geometric mean of its time over the best, where
           a failed run counts as 10.

schedules  One step of each trace, where only bytes count and every candidate is scored, compared
           with the dynamic policies. First the time ratios at some budgets; then the needs of each
           schedule without pressure: its peak over the unbudgeted one, its time ratio, and that of
           `dtr` in the same memory.

A TRACE is a file of `recoup run --trace`, or a log of the DTR authors.
"""

import argparse
import dataclasses
import math
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from measure import add_json, parser_of, say, write_result

import recoup
from recoup.bench.harness import pictures
from recoup.bench.harness.tables import print_cells
from recoup.bench.simulated import bisect
from recoup.offline.dtr_log import read_any_trace


def preset(name: str, **changes: Any) -> dict[str, Any]:
    """The policy and the options of a published system, with some of them changed."""
    return {"policy": name, **dataclasses.asdict(recoup.PRESETS[name]), **changes}


# --- policies ------------------------------------------------------------------------------------
VARIANTS: dict[str, dict[str, Any]] = {
    "recoup": {},
    "recoup,best-fit": {"placement": "best-fit"},
    "recoup,copy": {"in_place": "copy"},
    "recoup,no-addresses": {"layout": False},
    "msps": {"policy": "msps"},
    "dtr": {"policy": "dtr"},
    "dtr-eq": {"policy": "dtr-eq"},
    "dte": {"policy": "dte"},
    "coop": {"policy": "coop"},
    "coop-chain": {"policy": "coop", "chain_cost": True},
    "coop-move": {"policy": "coop-move"},
    "dtr-local": {"policy": "dtr-local"},
    "lru": {"policy": "lru"},
    "largest": {"policy": "largest"},
    "random": {"policy": "random"},
    "dtr:published": preset("dtr"),
    "dte:published": preset("dte"),
    "coop:published": preset("coop"),
    "coop:published,best-fit": preset("coop", placement="best-fit"),
    "coop:published,copy": preset("coop", in_place="copy"),
}


def simulate(trace: recoup.Trace, peak: int, percent: int, variant: str) -> dict[str, Any] | None:
    result = trace.simulate(
        peak * percent // 100,
        recoup.SimulationOptions(**VARIANTS[variant] | {"small_filter": False, "sampling": False}),
    )
    if result.status != "ok":
        return None
    stats = result.stats
    return {
        "time_ratio": result.time_ratio,
        "evictions": stats.evictions,
        "evicted_bytes": stats.evicted_bytes,
        "moves": stats.moves,
        "moved_bytes": stats.moved_bytes,
        "plans": stats.plans,
        "candidates_visited": stats.candidates_visited,
        "search_ns": stats.search_ns,
        "fragmentation": stats.fragmentation,
    }


def least(trace: recoup.Trace, peak: int, variant: str) -> int:
    """The least percentage that works, if a larger budget is never worse."""
    return 2 * bisect(0, 50, lambda half: simulate(trace, peak, 2 * half, variant) is not None)[1]


def geometric_mean(values: Iterable[float]) -> float:
    known = list(values)
    return statistics.geometric_mean(known) if known else math.nan


def compare_policies(args: argparse.Namespace) -> None:
    rows = []
    for path in args.traces:
        trace = read_any_trace(str(path))
        peak = trace.unbudgeted_peak_bytes()
        for variant in args.policies:
            rows.append(
                {
                    "trace": path.name,
                    "policy": variant,
                    "least_percent": least(trace, peak, variant),
                    "at": {
                        percent: simulate(trace, peak, percent, variant)
                        for percent in args.percents
                    },
                }
            )
        say(f"{path.name}: least " + least_of(rows, path.name))
    print_times(rows, args.percents, args.policies)
    print_work(rows, args.percents, args.policies)
    print_distance(rows, args.percents, args.policies)
    write_result(args.json, "policies", rows)
    if args.plot is not None:
        plot(rows, args.percents, args.policies, args.plot)


def plot(
    rows: list[dict[str, Any]],
    percents: list[int],
    policies: list[str],
    path: Path,
    most: float = 4,
) -> None:
    """Draws one panel per policy with the time ratio of each trace, as far as it works."""
    height, columns = pictures.grid(len(policies), 4)
    size = (11, 2.3 * height)
    figure, panels = pictures.panels(height, columns, size, sharex=True, sharey=True)
    for axes, policy in zip(panels.flat, policies, strict=False):
        mine = of_policy(rows, policy)
        for row in mine:
            points = [(percent, row["at"][percent]) for percent in percents if row["at"][percent]]
            axes.plot(
                [percent for percent, _ in points],
                [found["time_ratio"] for _, found in points],
                color="#1f6fb4",
                linewidth=0.8,
                alpha=0.5,
            )
        axes.set_title(policy, fontsize=9)
        axes.axhline(1.0, color="grey", linewidth=0.8, linestyle=":")
        axes.set_ylim(0.9, most)
        axes.set_yscale("log", base=2)
        axes.set_yticks([1, 1.2, 1.5, 2, 3, 4], ["1", "1.2", "1.5", "2", "3", "4"], fontsize=7)
        axes.tick_params(labelsize=7)
    for axes in panels.flat[len(policies) :]:
        axes.set_visible(False)
    panels[0][0].invert_xaxis()
    figure.supxlabel("budget, % of the unbudgeted peak", fontsize=8)
    figure.supylabel("ops and replays over ops", fontsize=8)
    pictures.save(figure, path, 100)


def least_of(rows: list[dict[str, Any]], trace: str) -> str:
    return ", ".join(
        f"{row['policy']} {row['least_percent']} %" for row in rows if row["trace"] == trace
    )


def of_policy(rows: list[dict[str, Any]], policy: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["policy"] == policy]


def common_cells(rows: list[dict[str, Any]], percents: list[int]) -> list[tuple[str, int]]:
    """(trace, percent) pairs that work under every policy."""
    traces = dict.fromkeys(row["trace"] for row in rows)
    return [
        (trace, percent)
        for trace in traces
        for percent in percents
        if all(row["at"][percent] is not None for row in rows if row["trace"] == trace)
    ]


def print_times(rows: list[dict[str, Any]], percents: list[int], policies: list[str]) -> None:
    common = common_cells(rows, percents)

    def cell(policy: str, percent: int) -> str:
        mine = of_policy(rows, policy)
        runs = sum(row["at"][percent] is not None for row in mine)
        mean = geometric_mean(
            row["at"][percent]["time_ratio"] for row in mine if (row["trace"], percent) in common
        )
        return f"{mean:.3f} ({runs})"

    def least_of_all(policy: str) -> str:
        mine = [row["least_percent"] for row in of_policy(rows, policy)]
        return f"{sum(mine) / len(mine):.1f} %"

    print_cells(
        "time ratio (traces that run)",
        ("policy", *(f"{percent} %" for percent in percents), "least"),
        [
            (policy, *(cell(policy, percent) for percent in percents), least_of_all(policy))
            for policy in policies
        ],
    )


def print_work(rows: list[dict[str, Any]], percents: list[int], policies: list[str]) -> None:
    common = common_cells(rows, percents)

    def total(policy: str, what: str) -> float:
        return sum(
            row["at"][percent][what]
            for row in of_policy(rows, policy)
            for trace, percent in common
            if trace == row["trace"]
        )

    print_cells(
        f"work in the {len(common)} budgets that every policy runs",
        ("policy", "evictions", "plans", "visited", "search ms", "moves", "moved", "fragmentation"),
        [
            (
                policy,
                f"{total(policy, 'evictions'):,}",
                f"{total(policy, 'plans'):,}",
                f"{total(policy, 'candidates_visited'):,}",
                f"{total(policy, 'search_ns') / 1e6:,.0f}",
                f"{total(policy, 'moves'):,}",
                f"{total(policy, 'moved_bytes') / max(1, total(policy, 'evicted_bytes')):.2f}",
                f"{total(policy, 'fragmentation') / len(common):.2%}",
            )
            for policy in policies
        ],
    )


def print_distance(rows: list[dict[str, Any]], percents: list[int], policies: list[str]) -> None:
    """Prints the distance from the best policy, in the budgets that work under any policy."""

    def time(row: dict[str, Any], percent: int) -> float:
        return float(row["at"][percent]["time_ratio"]) if row["at"][percent] else math.inf

    bounded = [p for p in policies if VARIANTS[p].get("layout", True)]
    traces = dict.fromkeys(row["trace"] for row in rows)
    best = {
        (trace, percent): min(
            time(row, percent) for row in rows if row["trace"] == trace and row["policy"] in bounded
        )
        for trace in traces
        for percent in percents
    }

    def over_best(policy: str, percent: int) -> list[float]:
        return [
            min(time(row, percent), 10.0) / best[row["trace"], percent]
            for row in of_policy(rows, policy)
            if best[row["trace"], percent] < math.inf
        ]

    def cells(policy: str) -> list[str]:
        found = [over_best(policy, percent) for percent in percents]
        near = [f"{sum(each <= 1.01 for each in column)}/{len(column)}" for column in found]
        return [*near, f"{geometric_mean(each for column in found for each in column):.3f}"]

    print_cells(
        "traces in which it takes at most 1.01 times the best, and its mean time over the best",
        ("policy", *(f"{percent} %" for percent in percents), "mean"),
        [(policy, *cells(policy)) for policy in bounded],
    )


# --- schedules -----------------------------------------------------------------------------------
SCHEDULES = [policy.name for policy in recoup.policies() if policy.schedule]
FOR_THE_BUDGET = ("budgeted", "rotor")  # without pressure these keep everything


def last_step(path: Path) -> recoup.Trace:
    trace = read_any_trace(str(path))
    return trace.step() if trace.steps() > 1 else trace


def run_schedule(trace: recoup.Trace, policy: str, budget: int) -> recoup.Simulation:
    return trace.simulate(
        budget,
        recoup.SimulationOptions(policy=policy, layout=False, plan_ahead=True, sampling=False),
    )


def ratio(result: recoup.Simulation) -> str:
    return f"{result.time_ratio:.2f}" if result.status == "ok" else "-"


def compare_schedules(args: argparse.Namespace) -> None:
    names = ["dtr", *SCHEDULES, "oracle"]
    rows, ratios, needs = [], [], []
    for path in args.traces:
        trace = last_step(path)
        peak = trace.unbudgeted_peak_bytes()
        label = path.name.partition(".")[0]
        for fraction in args.fractions:
            results = [run_schedule(trace, name, int(fraction * peak)) for name in names]
            rows += [
                {"trace": label, "fraction": fraction, **result.to_dict()} for result in results
            ]
            ratios.append((label, f"{fraction:.0%}", *map(ratio, results)))
        cells = []
        for name in SCHEDULES:
            if name not in FOR_THE_BUDGET:
                alone = run_schedule(trace, name, peak)
                used = alone.stats.peak_bytes
                dtr = run_schedule(trace, "dtr", used)
                cells.append(f"{used / peak:.0%}, {ratio(alone)} ({ratio(dtr)})")
        needs.append((label, *cells))
    print_cells("time ratios", ("trace", "budget", *names), ratios, texts=2)
    alone_names = [name for name in SCHEDULES if name not in FOR_THE_BUDGET]
    print_cells("peak, time ratio (dtr's in that memory)", ("trace", *alone_names), needs)
    write_result(args.json, "schedules", rows)


def main() -> None:
    parser = parser_of(__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    policies = commands.add_parser("policies", help="which costs least, and runs in least")
    policies.set_defaults(compare=compare_policies)
    policies.add_argument(
        "--percents",
        type=int,
        nargs="+",
        default=[90, 80, 70, 60, 50, 40, 30, 20],
        metavar="PERCENT",
    )
    policies.add_argument("--policies", nargs="+", default=list(VARIANTS), choices=VARIANTS)
    policies.add_argument("--plot", type=Path, metavar="FILE", help="draw a panel a policy")
    schedules = commands.add_parser("schedules", help="compared with dtr and the oracle")
    schedules.set_defaults(compare=compare_schedules)
    schedules.add_argument("--fractions", type=float, nargs="+", default=[1.0, 0.7, 0.5, 0.3])
    for each in (policies, schedules):
        each.add_argument("traces", type=Path, nargs="+", metavar="TRACE")
    add_json(policies, schedules)
    args = parser.parse_args()
    args.compare(args)


if __name__ == "__main__":
    main()
