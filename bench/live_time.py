"""Compares the time of live steps with a simulation of the trace of that very run.

    python bench/live_time.py --nets real:gpt2 --shares 0.5 0.35 0.25 --spill 64GiB

Each net is trained in each share of its peak, which a recording of two steps gives. A trace is
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
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from measure import write_result
from predictions import find

import recoup
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


def difference(early: recoup.Stats, late: recoup.Stats, steps: int) -> dict[str, float]:
    return {name: (getattr(late, name) - getattr(early, name)) / steps for name in COUNTERS}


def watched(net: Net, steps: int, run: recoup.Run) -> Steps:
    """Trains the net, and returns the time and the counters of the later half of the steps."""
    torch.manual_seed(0)
    model = net.make().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    chance = torch.Generator().manual_seed(1)
    first = steps // 2
    for step in range(steps):
        if step == first:
            early, start = run.stats(), time.perf_counter()
        loss = net.loss(model, net.batch(chance))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        loss.item()
    seconds = (time.perf_counter() - start) / (steps - first)
    return Steps(first, steps - first, seconds, difference(early, run.stats(), steps - first))


def live(net: Net, steps: int, budget: int, spill: str | None, path: Path) -> Steps:
    with recoup.budget(budget, spill=spill, trace=path) as run:
        return watched(net, steps, run)


def simulated(path: Path, budget: int, spill: str | None, steps: Steps) -> dict[str, float]:
    """Counters and costs of the same steps in a simulation, for a step."""
    trace = recoup.Trace.read(path)
    copied = steps.counters["spilled_bytes"] + steps.counters["fetched_bytes"]
    tier: dict[str, Any] = {}
    if spill is not None:
        rate = copied / steps.counters["copy_time_ns"] if copied else 0.8  # GB/s
        tier = {"spill": spill, "spill_bandwidth": (rate, rate)}
    early, late = (
        first_steps(trace, count).simulate(budget, max_time_ratio=0, **tier)
        for count in (steps.first, steps.first + steps.count)
    )
    found = difference(early.stats, late.stats, steps.count)
    for name in ("plain_cost_ns", "replay_cost_ns", "spill_cost_ns"):
        found[name] = (getattr(late, name) - getattr(early, name)) / steps.count
    return found


def measured(net: Net, peak: int, options: argparse.Namespace, share: float) -> dict[str, Any]:
    budget = int(share * peak)
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
        "net": net.name, "share": share, "budget_bytes": budget, "steps": options.steps,
        "live_s": steps.seconds, "op_s": counted["op_ns"], "replay_s": counted["replay_ns"],
        "wait_s": waits, "move_s": counted["move_ns"], "bookkeeping_s": bookkeeping,
        "rest_s": rest, "replays": steps.counters["replays"],
        "copied_bytes": steps.counters["spilled_bytes"] + steps.counters["fetched_bytes"],
        "simulated_s": total, "simulated_replay_s": costs["replay_cost_ns"],
        "simulated_wait_s": simulated_waits, "simulated_replays": found["replays"],
        "simulated_copied_bytes": found["spilled_bytes"] + found["fetched_bytes"],
        "simulated_copy_share_s": 1e-9 * found["spill_cost_ns"],
        "engine_ratio": total / ours, "whole_ratio": 1 + (total - ours) / steps.seconds,
    }  # fmt: skip


COLUMNS = (
    "net", "live", "ops", "replays", "waits", "moves", "bookkeeping", "rest", "simulated",
    "its replays", "its waits", "replays", "GB copied", "engine", "whole",
)  # fmt: skip


def line(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def cells_of(row: dict[str, Any]) -> tuple[str, ...]:
    parts = ("live_s", "op_s", "replay_s", "wait_s", "move_s", "bookkeeping_s", "rest_s")
    simulation = ("simulated_s", "simulated_replay_s", "simulated_wait_s")
    return (
        f"{row['net']} {row['share']:.0%}",
        *(f"{row[name]:.2f}" for name in (*parts, *simulation)),
        f"{row['replays']:,.0f}, {row['simulated_replays']:,.0f}",
        f"{row['copied_bytes'] / 1e9:.2f}, {row['simulated_copied_bytes'] / 1e9:.2f}",
        f"{row['engine_ratio']:.3f}",
        f"{row['whole_ratio']:.3f}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--nets", nargs="+", default=["gpt2"], help="real:NAME: of published size")
    parser.add_argument("--shares", nargs="+", type=float, default=[0.5, 0.35, 0.25])
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--spill", help="size of a spill tier; default: none")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.steps < 4:
        parser.error("fewer than 4 steps have no later half that repeats")
    print(line(COLUMNS))
    print(line(("---",) * len(COLUMNS)), flush=True)
    rows = []
    for name in options.nets:
        net = find(name)
        with tempfile.TemporaryDirectory() as folder:
            peak = record(net, 2, 0, Path(folder) / "peak.rtrace").unbudgeted_peak_bytes()
        for share in options.shares:
            rows.append(measured(net, peak, options, share))
            print(line(cells_of(rows[-1])), flush=True)
    write_result(options.out, "live_time", rows)


if __name__ == "__main__":
    main()
