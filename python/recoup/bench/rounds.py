"""Alternates cases with plain runs of their net: plain, case, case, ..., plain.

Each case is compared with the interpolation between the plain runs before and after it, so that a
drift of the machine's speed affects both sides equally.
"""

import statistics
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, ParamSpec

import recoup
from recoup.bench.harness.turns import Ratios, pairs
from recoup.bench.nets import Net
from recoup.bench.simulated import FEASIBLE_RATIO
from recoup.bench.trial import Trial, compute_overhead, run_in, run_plainly

_P = ParamSpec("_P")

CASES = 8
"""Maximum number of cases between two plain runs."""


class BitsDifferError(Exception):
    """Raised when a training in a budget, or a second plain one, differs from the first one."""


@dataclass(frozen=True)
class Timed:
    """A run, and the time of its middle in seconds."""

    at: float
    trial: Trial


def timed(run: Callable[_P, Trial], *args: _P.args, **options: _P.kwargs) -> Timed:
    start = time.perf_counter()
    trial = run(*args, **options)
    return Timed((start + time.perf_counter()) / 2, trial)


def plain_seconds(before: Timed, after: Timed, at: float) -> float:
    """Time of a plain step at that moment, interpolated between the two runs around it."""
    fraction = (at - before.at) / (after.at - before.at)
    return (1 - fraction) * before.trial.step_seconds + fraction * after.trial.step_seconds


def run_compared(
    net: Net, steps: int, seed: int, budget: int, plain: Trial, **options: Any
) -> Trial:
    """Trains in a budget; options: those of `recoup.budget`.

    Raises OutOfBudgetError, and BitsDifferError if the bits of `plain` differ.
    """
    trial = run_in(net, steps, seed, budget, **options)
    if trial.digest != plain.digest:
        said = "".join(f" with {name} {value}" for name, value in options.items())
        raise BitsDifferError(
            f"{net.name}{said} in {budget:,} bytes: bits differ from plain PyTorch"
        )
    return trial


def run_pairs(
    net: Net, steps: int, seed: int, rounds: int, ours: Callable[[Trial], Trial]
) -> tuple[Ratios, recoup.Stats]:
    """Ratios of pairs of a plain run and `ours` of it, and the statistics of the last one.

    The first pair warms up. Raises what `ours` raises.
    """
    ratios = Ratios()
    for plain, trial in pairs(rounds, lambda: run_plainly(net, steps, seed), ours):
        ratios.add(plain.step_seconds, trial.step_seconds)
    assert trial.stats is not None
    return ratios, trial.stats


def run_round(
    net: Net, steps: int, seed: int, rows: list[dict[str, Any]], before: Timed
) -> Generator[str, None, Timed]:
    """Runs each case once, announces it, and returns the plain run after them.

    `rows` are the cases' rows, see Results; each gets one more time ratio, or the reason why there
    is none. Raises BitsDifferError.
    """
    ran = []
    for row in rows:
        yield f"{net.name}, {row['policy']}, {100 * row['fraction']:g}%"
        policy, budget = row["policy"], row["budget_bytes"]
        try:
            found = timed(run_compared, net, steps, seed, budget, before.trial, policy=policy)
        except recoup.OutOfBudgetError as error:
            row |= {"status": "out of budget", "reason": str(error).partition("\n")[0]}
            continue
        ran.append((row, found))
    after = timed(run_plainly, net, steps, seed)
    if after.trial.digest != before.trial.digest:
        raise BitsDifferError(f"{net.name}: the bits of two plain runs differ")
    for row, found in ran:
        row["time_ratios"].append(found.trial.step_seconds / plain_seconds(before, after, found.at))
        _describe(row, found.trial.stats)
    return after


def _describe(row: dict[str, Any], stats: recoup.Stats | None) -> None:
    assert stats is not None
    overhead = compute_overhead(stats)
    if overhead > FEASIBLE_RATIO:
        row["status"] = "too slow"
    row |= {
        "bits_equal": True,
        "time_ratio": statistics.median(row["time_ratios"]),
        "compute_overhead": overhead,
        "search_fraction": stats.search_ns / stats.op_ns,
        "bookkeeping_fraction": stats.bookkeeping_ns / stats.op_ns,
        "move_fraction": stats.move_ns / stats.op_ns,
        "allocator_fraction": stats.allocator_ns / stats.op_ns,
        "fragmentation": stats.fragmentation,
        "scatter": stats.scatter,
        "stats": stats.to_dict(),
    }
