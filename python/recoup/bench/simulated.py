"""Simulations of a net's trace: the least budget of a policy, and the cost of addresses."""

from collections.abc import Callable
from typing import Any

import recoup

FEASIBLE_RATIO = 10.0
"""A run that takes more than this multiple of its plain op time counts as infeasible."""
HOPELESS_RATIO = 2 * FEASIBLE_RATIO
"""A case that takes more than this multiple in simulation is not run on real tensors."""


def least_budget(trace: recoup.Trace, policy: str, peak: int) -> int | None:
    """The least budget that works, to 1 % of the peak, by bisection.

    None if not even the peak is enough.
    """

    def runs(budget: int) -> bool:
        result = trace.simulate(
            budget, recoup.SimulationOptions(policy=policy, max_time_ratio=FEASIBLE_RATIO)
        )
        return result.status == "ok"

    return _least(peak, 0, 100, runs)


def whole_budget(trace: recoup.Trace, peak: int) -> int | None:
    """The least budget without evictions, up to twice the peak, by bisection.

    Its excess over the peak is lost to fragmentation.
    """

    def is_enough(budget: int) -> bool:
        result = trace.simulate(budget)
        return result.status == "ok" and result.stats.evictions == 0

    return _least(peak, 99, 200, is_enough)


def _least(peak: int, low: int, high: int, does: Callable[[int], bool]) -> int | None:
    """Bisects between two percentages of the peak; `low` must fail. None if `high` fails."""
    if not does(peak * high // 100):
        return None
    _, enough = bisect(low, high, lambda percent: does(peak * percent // 100))
    return peak * enough // 100


def bisect(
    low: int, high: int, works: Callable[[int], bool], *, resolution: float = 0.0
) -> tuple[int, int]:
    """(too small, enough), whose difference is 1 or at most `resolution` times the latter.

    low: a number that is too small.
    high: a number that is enough.
    """
    while high - low > max(1, resolution * high):
        middle = (low + high) // 2
        low, high = (low, middle) if works(middle) else (middle, high)
    return low, high


def layout_row(trace: recoup.Trace, policy: str, budget: int) -> dict[str, Any]:
    """A run with addresses in the pool, compared with the same run in which only bytes count.

    cost: bytes evicted or moved beyond those evicted without addresses, over the bytes of
        allocations that found no room. None if there was no such allocation.
    scatter: `Stats.scatter`.
    time_ratio: time of the run over that without addresses.
    fragmentation_without: the published rate, without addresses.

    Comparisons of the two runs are None unless both complete.
    """
    here, free = (
        trace.simulate(
            budget,
            recoup.SimulationOptions(policy=policy, max_time_ratio=HOPELESS_RATIO, layout=layout),
        )
        for layout in (True, False)
    )
    row: dict[str, Any] = {
        "status": here.status,
        "status_without": free.status,
        "scatter": here.stats.scatter,
        "cost": None,
        "time_ratio": None,
        "fragmentation_without": free.stats.fragmentation,
    }
    if here.status == free.status == "ok":
        beyond = here.stats.evicted_bytes + here.stats.moved_bytes - free.stats.evicted_bytes
        if here.stats.made_room_bytes > 0:
            row["cost"] = beyond / here.stats.made_room_bytes
        row["time_ratio"] = here.time_ratio / free.time_ratio
    return row
