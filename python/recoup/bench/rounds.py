"""Cases in turns with plain runs of their net: plain, case, case, ..., plain.

Each case is compared with the plain runs before and after it, on the line between the two: a
machine that grows slower, or faster, meanwhile does so for both sides.
"""

import statistics
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, ParamSpec

import recoup
from recoup.bench.nets import Net
from recoup.bench.simulated import FEASIBLE_RATIO
from recoup.bench.trial import Trial, run_in, run_plainly

_P = ParamSpec("_P")

CASES = 8
"""At most, between two plain runs."""


class BitsDifferError(Exception):
    """A training in a budget, or a second plain one, is not what the first one was."""


@dataclass(frozen=True)
class Timed:
    """A run, and when it was: its middle, in seconds."""

    at: float
    trial: Trial


def timed(run: Callable[_P, Trial], *args: _P.args, **options: _P.kwargs) -> Timed:
    start = time.perf_counter()
    trial = run(*args, **options)
    return Timed((start + time.perf_counter()) / 2, trial)


def plain_seconds(before: Timed, after: Timed, at: float) -> float:
    """A plain step's at that time, by the two runs around it."""
    share = (at - before.at) / (after.at - before.at)
    return (1 - share) * before.trial.step_seconds + share * after.trial.step_seconds


def run_round(
    net: Net, steps: int, seed: int, rows: list[dict[str, Any]], before: Timed
) -> Generator[str, None, Timed]:
    """Runs each case once, says which is next, and returns the plain run behind them.

    `rows` are the cases', see Results; they get one time ratio more, or the reason why there is
    none. Raises BitsDifferError.
    """
    ran = []
    for row in rows:
        yield f"{net.name}, {row['policy']}, {100 * row['share']:g}%"
        policy, budget = row["policy"], row["budget_bytes"]
        try:
            found = timed(run_in, net, steps, seed, budget, policy=policy)
        except recoup.OutOfBudgetError as error:
            row |= {"status": "out of budget", "reason": str(error).partition("\n")[0]}
            continue
        if found.trial.digest != before.trial.digest:
            raise BitsDifferError(f"{net.name} under {policy} in {budget:,} bytes: bits differ")
        ran.append((row, found))
    after = timed(run_plainly, net, steps, seed)
    if after.trial.digest != before.trial.digest:
        raise BitsDifferError(f"{net.name} has other bits in two plain runs")
    for row, found in ran:
        row["time_ratios"].append(found.trial.step_seconds / plain_seconds(before, after, found.at))
        _describe(row, found.trial.stats)
    return after


def _describe(row: dict[str, Any], stats: recoup.Stats | None) -> None:
    assert stats is not None
    overhead = (stats.op_ns + stats.replay_cost_ns) / stats.op_ns
    if overhead > FEASIBLE_RATIO:
        row["status"] = "too slow"
    row |= {
        "bits_equal": True,
        "time_ratio": statistics.median(row["time_ratios"]),
        "compute_overhead": overhead,
        "search_share": stats.search_ns / stats.op_ns,
        "bookkeeping_share": stats.bookkeeping_ns / stats.op_ns,
        "move_share": stats.move_ns / stats.op_ns,
        "allocator_share": stats.allocator_ns / stats.op_ns,
        "fragmentation": stats.fragmentation,
        "scatter": stats.scatter,
        "stats": stats.to_dict(),
    }
