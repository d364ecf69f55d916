"""Measures the value of a spill tier, in simulation: least budgets, and time at equal budgets.

    OMP_NUM_THREADS=1 python bench/spilling.py floors --folder runs
    OMP_NUM_THREADS=1 python bench/spilling.py overheads --folder runs
    OMP_NUM_THREADS=1 python bench/spilling.py policies --folder runs

The nets of `recoup bench` are trained for eight steps each, inside the scope. A trace in --folder
is not recorded again.

floors     The least budget that works, without a tier and with one, compared with the needs of the
           largest op: its operands, results and workspace. The goal is 1.15 times that and 4 MiB.
           Below the table: what holds the memory in a budget that is just too small.

overheads  Costs of replays and copies over those of the program's own ops, in fractions of the
           unbudgeted peak: without a tier under `planned` and `recoup`, and with two tiers. One has
           0.8 GB/s each way, the other ten times the rate at which the last step makes the values
           that it keeps for its backward pass. A copy takes 100 us in addition to the time of its
           bytes, or the value of --request.

policies   The same with the faster of these tiers, under `recoup` and other rules: least recently
           used values spilled, and the rules of TFLMS and Capuchin, which know the future.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure import (
    add_json,
    megabytes,
    parser_of,
    program_of_net,
    recorded,
    say,
    write_result,
)

import recoup
from recoup.bench.harness.tables import print_rows
from recoup.bench.nets import NETS
from recoup.bench.nets.net import Net
from recoup.bench.nets.real import REAL_NETS
from recoup.bench.simulated import FEASIBLE_RATIO, bisect
from recoup.offline.graph import graph_of

STEPS = 8  # after the sixth, most nets copy the same values in each step
TIER: dict[str, Any] = {"spill": "1TiB"}  # never full
# With results in place of operands, less than the largest op needs is enough: see in_place.py.
APART: dict[str, Any] = {"reuse_operands": False}
POLICY = "recoup"
RESOLUTION = 0.005
ASKED_RATIO = 1.15
ASKED_MORE = 4 << 20
DISK = 0.8  # GB/s; of a virtual disk
FRACTIONS = (0.8, 0.6, 0.5, 0.4, 0.3, 0.25)
TIMES_THE_RATE = 10
REQUEST_US = 100.0  # of a copy, in addition to the time of its bytes
OTHERS = ("recoup", "lru-copy", "tflms", "capuchin")
MOST_RATIO = 100.0  # slower simulations are stopped


def nets_of(size: str) -> dict[str, Net]:
    nets = NETS if size == "small" else [each.net for each in REAL_NETS]
    return {net.name: net for net in nets}


def traces(args: argparse.Namespace) -> Iterator[tuple[str, recoup.Trace]]:
    nets = nets_of(args.size)
    args.folder.mkdir(parents=True, exist_ok=True)
    for name in args.nets or nets:
        path = args.folder / f"{args.size}-{name}.rtrace"
        if path.exists():
            yield name, recoup.Trace.read(path)
        else:
            say(f"{name}: recording")
            yield name, recorded(program_of_net(nets[name]), STEPS, path)


# --- floors --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Need:
    """Memory that one op needs at once."""

    op: str
    total_bytes: int


def largest_need(trace: recoup.Trace) -> Need:
    graph = graph_of(trace)

    def need(at: int) -> int:
        op = graph.ops[at]
        # A block that is overwritten completely is needed too, though its content is not read.
        blind = [v for v in op.outputs if graph.values[v].before not in (None, *op.inputs)]
        return op.kernel_bytes + sum(graph.values[v].size_bytes for v in (*op.inputs, *blind))

    largest = max(range(len(graph.ops)), key=need)
    return Need(graph.ops[largest].name, need(largest))


def runs(trace: recoup.Trace, budget: int, options: dict[str, Any]) -> bool:
    run = trace.simulate(
        budget, recoup.SimulationOptions(policy=POLICY, max_time_ratio=FEASIBLE_RATIO, **options)
    )
    return run.status == "ok"


def why(trace: recoup.Trace, budget: int) -> str:
    """What holds the memory in a budget that is too small even with a tier."""
    run = trace.simulate(
        budget,
        recoup.SimulationOptions(policy=POLICY, max_time_ratio=FEASIBLE_RATIO, **(TIER | APART)),
    )
    return run.reason.partition(" This needs at least")[0] or run.status


def floor_row(name: str, trace: recoup.Trace) -> dict[str, Any]:
    peak, need = trace.unbudgeted_peak_bytes(), largest_need(trace)

    def least(options: dict[str, Any]) -> tuple[int, int]:
        """(too small, enough)"""
        return bisect(
            0, 2 * peak, lambda budget: runs(trace, budget, options), resolution=RESOLUTION
        )

    _, without = least(APART)
    below, enough = least(TIER | APART)
    asked = int(ASKED_RATIO * need.total_bytes) + ASKED_MORE
    row = {
        "net": name,
        "peak_bytes": peak,
        "op": need.op,
        "need_bytes": need.total_bytes,
        "without_bytes": without,
        "with_bytes": enough,
        "over_need": enough / need.total_bytes,
        "asked_bytes": asked,
        "kept": enough <= asked,
        "below_bytes": below,
        "reason": why(trace, below),
    }
    say(f"{name}: {row}")
    return row


FLOOR_COLUMNS = {
    "net": "{net}",
    "largest op": "{op}",
    "it needs": "{need_bytes:.1fMB}",
    "peak": "{peak_bytes:.1fMB}",
    "least without": "{without_bytes:.1fMB}",
    "with a tier": "{with_bytes:.1fMB}",
    "over need": "{over_need:.2f}x",
    "asked": "{asked_bytes:.1fMB}",
    "kept": "{kept}",
}


def measure_floors(args: argparse.Namespace) -> None:
    rows = [floor_row(*each) for each in traces(args)]
    print_rows("least budgets", FLOOR_COLUMNS, rows, texts=2)
    for row in rows:
        print(f"{row['net']} in {megabytes(row['below_bytes'])}: {row['reason']}")
    write_result(args.json, "floors", rows)


# --- overheads -----------------------------------------------------------------------------------
def rate_of(trace: recoup.Trace) -> float:
    """Growth of memory in bytes per nanosecond, from the start of the last step to its peak."""
    step = trace.step()
    moments = [
        m
        for m in step.timeline(1 << 45, recoup.SimulationOptions(policy="unbounded"))
        if m.kind == "op"
    ]
    most = max(moments, key=lambda moment: moment.charged_bytes)
    passed = most.start_ns + most.cost_ns - moments[0].start_ns
    return (most.charged_bytes - moments[0].charged_bytes) / passed


def tier_of(rate: float, request_us: float) -> dict[str, Any]:
    return {"spill_bandwidth": (rate, rate), "spill_request_ns": int(request_us * 1000), **TIER}


def overheads_of(
    name: str,
    trace: recoup.Trace,
    fractions: Iterable[float],
    kinds: dict[str, dict[str, Any]],
) -> Iterator[dict[str, Any]]:
    """A row for each fraction of the peak, with each kind's overhead; None: it does not run."""
    for fraction in fractions:
        budget = int(fraction * trace.unbudgeted_peak_bytes())
        row: dict[str, Any] = {"net": name, "fraction": fraction, "rate": rate_of(trace)}
        for kind, options in kinds.items():
            run = trace.simulate(
                budget, recoup.SimulationOptions(max_time_ratio=MOST_RATIO, **options)
            )
            row[kind] = run.time_ratio - 1 if run.status == "ok" else None
            if options.get("spill"):
                row[f"{kind}_spilled_bytes"] = run.stats.spilled_bytes
                row[f"{kind}_spill_cost_ns"] = run.spill_cost_ns
                row[f"{kind}_replay_cost_ns"] = run.replay_cost_ns
        say(f"{row}")
        yield row


def overhead_row(
    name: str, trace: recoup.Trace, fractions: Iterable[float], request_us: float = REQUEST_US
) -> Iterator[dict[str, Any]]:
    fast = tier_of(TIMES_THE_RATE * rate_of(trace), request_us)
    kinds = {
        "planned": {"policy": "planned"},
        "recoup": {"policy": POLICY},
        "disk": {"policy": POLICY, **tier_of(DISK, request_us)},
        "fast": {"policy": POLICY, **fast},
    }
    return overheads_of(name, trace, fractions, kinds)


def is_above(row: dict[str, Any], kind: str, times: float = 1.0) -> bool:
    """Whether the overhead is above `times` that of a run without a tier, if that works at all."""
    if row["recoup"] is None:
        return False
    return row[kind] is None or row[kind] > times * row["recoup"] + 1e-9


OVERHEAD_COLUMNS = {
    "net": "{net}",
    "rate": "{rate:.2f} GB/s",
    "budget": "{fraction:.0%}",
    "planned": "{planned:.1%}",
    "recoup": "{recoup:.1%}",
    "tier, 0.8 GB/s": "{disk:.1%}",
    "tier, 10x the rate": "{fast:.1%}",
}


def measure_overheads(args: argparse.Namespace) -> None:
    rows = [
        row for each in traces(args) for row in overhead_row(*each, args.fractions, args.request)
    ]
    print_rows("overhead", OVERHEAD_COLUMNS, rows)
    for kind in ("disk", "fast"):
        above = [f"{row['net']} {row['fraction']:.0%}" for row in rows if is_above(row, kind)]
        print(
            f"{kind}: {len(above)} of {len(rows)} above recoup without a tier: {', '.join(above)}"
        )
    tight = [row for row in rows if row["fraction"] <= 0.4 and row["recoup"] is not None]
    missed = [
        f"{row['net']} {row['fraction']:.0%}" for row in tight if is_above(row, "fast", 2 / 3)
    ]
    print(f"not a third below at 40 to 25 %: {len(missed)} of {len(tight)}: {', '.join(missed)}")
    write_result(args.json, "overheads", rows)


# --- policies ------------------------------------------------------------------------------------
def policy_row(
    name: str, trace: recoup.Trace, fractions: Iterable[float], request_us: float = REQUEST_US
) -> Iterator[dict[str, Any]]:
    tier = tier_of(TIMES_THE_RATE * rate_of(trace), request_us)
    kinds = {policy: {"policy": policy, **tier} for policy in OTHERS}
    return overheads_of(name, trace, fractions, kinds)


def measure_policies(args: argparse.Namespace) -> None:
    rows = [row for each in traces(args) for row in policy_row(*each, args.fractions, args.request)]
    columns = {"net": "{net}", "budget": "{fraction:.0%}"}
    columns |= {policy: f"{{{policy}:.1%}}" for policy in OTHERS}
    print_rows("overhead with a tier of 10x the rate", columns, rows)
    for policy in OTHERS[1:]:
        below = [row for row in rows if row[policy] is not None and is_below(row, policy)]
        names = ", ".join(f"{row['net']} {row['fraction']:.0%}" for row in below)
        print(f"{policy}: below recoup in {len(below)} of {len(rows)}: {names}")
    write_result(args.json, "policies", rows)


def is_below(row: dict[str, Any], policy: str) -> bool:
    return row["recoup"] is None or row[policy] < row["recoup"] - 1e-9


def main() -> int:
    parser = parser_of(__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    floors = commands.add_parser("floors", help="least budgets")
    floors.set_defaults(measure=measure_floors)
    overheads = commands.add_parser("overheads", help="time at equal budgets")
    overheads.set_defaults(measure=measure_overheads)
    policies = commands.add_parser("policies", help="compared with other systems")
    policies.set_defaults(measure=measure_policies)
    for each in (overheads, policies):
        each.add_argument("--fractions", type=float, nargs="+", default=list(FRACTIONS))
        each.add_argument("--request", type=float, metavar="US", default=REQUEST_US)
    for each in (floors, overheads, policies):
        each.add_argument("--size", choices=["small", "real"], default="small")
        each.add_argument("--nets", nargs="+", metavar="NET", help="default: all")
        each.add_argument("--folder", type=Path, required=True, help="of the traces")
    add_json(floors, overheads, policies)
    args = parser.parse_args()
    args.measure(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
