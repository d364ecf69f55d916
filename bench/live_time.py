"""Compares the time of live steps with a simulation of the trace of that very run.

    python bench/live_time.py --nets real:gpt2 --fractions 0.5 0.35 0.25 --spill 64GiB

Each net is trained in each fraction of its peak, which a recording of two steps gives. A trace is
recorded in the budget, so it has the times that the ops took there. That trace is simulated in the
same budget, with the rate at which the tier copied. The later half of the steps counts; all times
are seconds of a step:

    live       time of a step, and its parts: the program's ops, replays, waits for copies, moves in
               the pool, bookkeeping (with search), and the rest: Python, autograd and dispatch,
               which plain PyTorch has as well
    simulated  ops, replays and waits for copies in the simulation
    engine     simulated time over the live time of the same parts
    whole      simulated time, plus the live parts that no simulation has, over the live time
"""

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure import SEED, add_json, find, later_half, parser_of, per_step, write_result

import recoup
from recoup.bench.harness.tables import print_markdown
from recoup.bench.nets import Net
from recoup.bench.trial import record
from recoup.offline.trace_steps import first_steps

COUNTERS = (
    "op_ns", "replay_ns", "replays", "spill_ns", "fetch_ns", "move_ns", "bookkeeping_ns",
    "search_ns", "copy_time_ns", "spilled_bytes", "fetched_bytes",
)  # fmt: skip


@dataclass(frozen=True)
class Steps:
    """The later half of a run's steps."""

    first: int
    """Number of steps before them."""
    count: int
    seconds: float
    """Time of a step."""
    counters: dict[str, float]
    """Counters of the engine for a step."""


def live(net: Net, steps: int, budget: int, spill: str | None, path: Path) -> Steps:
    first = steps // 2
    with recoup.budget(budget, spill=spill, trace=path) as run:
        _, seconds, counted = later_half(net, steps, run, COUNTERS)
    return Steps(first, steps - first, seconds, counted)


def simulated(path: Path, budget: int, spill: str | None, steps: Steps) -> dict[str, float]:
    """Counters and costs of the same steps in a simulation, for a step."""
    trace = recoup.Trace.read(path)
    copied = steps.counters["spilled_bytes"] + steps.counters["fetched_bytes"]
    tier: dict[str, Any] = {}
    if spill is not None:
        rate = copied / steps.counters["copy_time_ns"] if copied else 0.8  # GB/s
        tier = {"spill": spill, "spill_bandwidth": (rate, rate)}
    early, late = (
        first_steps(trace, count).simulate(
            budget, recoup.SimulationOptions(max_time_ratio=0, **tier)
        )
        for count in (steps.first, steps.first + steps.count)
    )
    found = per_step(early.stats, late.stats, steps.count, COUNTERS)
    for name in ("plain_cost_ns", "replay_cost_ns", "spill_cost_ns"):
        found[name] = (getattr(late, name) - getattr(early, name)) / steps.count
    return found


def measured(net: Net, peak: int, options: argparse.Namespace, fraction: float) -> dict[str, Any]:
    budget = int(fraction * peak)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.rtrace"
        steps = live(net, options.steps, budget, options.spill, path)
        found = simulated(path, budget, options.spill, steps)
    counted = {name: 1e-9 * value for name, value in steps.counters.items()}
    waits = counted["spill_ns"] + counted["fetch_ns"]
    ours = counted["op_ns"] + counted["replay_ns"] + waits
    bookkeeping = counted["bookkeeping_ns"] + counted["search_ns"]
    rest = steps.seconds - ours - counted["move_ns"] - bookkeeping
    costs = {name: 1e-9 * found[name] for name in ("plain_cost_ns", "replay_cost_ns")}
    simulated_waits = 1e-9 * (found["spill_ns"] + found["fetch_ns"])
    total = sum(costs.values()) + simulated_waits
    return {
        "net": net.name, "fraction": fraction, "budget_bytes": budget, "steps": options.steps,
        "live_s": steps.seconds, "op_s": counted["op_ns"], "replay_s": counted["replay_ns"],
        "wait_s": waits, "move_s": counted["move_ns"], "bookkeeping_s": bookkeeping,
        "rest_s": rest, "replays": steps.counters["replays"],
        "copied_bytes": steps.counters["spilled_bytes"] + steps.counters["fetched_bytes"],
        "simulated_s": total, "simulated_replay_s": costs["replay_cost_ns"],
        "simulated_wait_s": simulated_waits, "simulated_replays": found["replays"],
        "simulated_copied_bytes": found["spilled_bytes"] + found["fetched_bytes"],
        "simulated_copy_fraction_s": 1e-9 * found["spill_cost_ns"],
        "engine_ratio": total / ours, "whole_ratio": 1 + (total - ours) / steps.seconds,
    }  # fmt: skip


COLUMNS = {
    "net": "{net} {fraction:.0%}",
    "live": "{live_s:.2f}",
    "ops": "{op_s:.2f}",
    "replays": "{replay_s:.2f}",
    "waits": "{wait_s:.2f}",
    "moves": "{move_s:.2f}",
    "bookkeeping": "{bookkeeping_s:.2f}",
    "rest": "{rest_s:.2f}",
    "simulated": "{simulated_s:.2f}",
    "its replays": "{simulated_replay_s:.2f}",
    "its waits": "{simulated_wait_s:.2f}",
    "number of replays": "{replays:,.0f}, {simulated_replays:,.0f}",
    "copied": "{copied_bytes:.2fGB}, {simulated_copied_bytes:.2fGB}",
    "engine": "{engine_ratio:.3f}",
    "whole": "{whole_ratio:.3f}",
}


def all_measured(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for name in options.nets:
        net = find(name)
        peak = record(net, 2, SEED).unbudgeted_peak_bytes()
        for fraction in options.fractions:
            yield measured(net, peak, options, fraction)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--nets", nargs="+", default=["gpt2"], help="real:NAME: of published size")
    parser.add_argument("--fractions", nargs="+", type=float, default=[0.5, 0.35, 0.25])
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--spill", help="size of a spill tier; default: none")
    add_json(parser)
    options = parser.parse_args()
    if options.steps < 4:
        parser.error("fewer than 4 steps have no later half that repeats")
    rows = print_markdown(COLUMNS, all_measured(options))
    write_result(options.json, "live_time", rows)


if __name__ == "__main__":
    main()
