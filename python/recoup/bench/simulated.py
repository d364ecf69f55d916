"""What simulation of a net's trace says of a policy: least budget, and what addresses cost."""

from collections.abc import Callable
from typing import Any

import recoup

FEASIBLE_RATIO = 10.0
"""A run that takes more than that many times its plain op time counts as infeasible."""
HOPELESS_RATIO = 2 * FEASIBLE_RATIO
"""A case that takes more than that in simulation is not run on real tensors."""


def least_budget(trace: recoup.Trace, policy: str, peak: int) -> int | None:
    """The least one that runs, to 1 % of the peak; found by bisection.

    None when not even the peak is enough.
    """

    def runs(budget: int) -> bool:
        result = trace.simulate(budget, policy=policy, max_time_ratio=FEASIBLE_RATIO)
        return result.status == "ok"

    return _least(peak, 0, 100, runs)


def whole_budget(trace: recoup.Trace, peak: int) -> int | None:
    """The least one in which nothing is evicted, up to twice the peak, found in the same way.

    What it has beyond the peak is lost to addresses.
    """

    def is_enough(budget: int) -> bool:
        result = trace.simulate(budget)
        return result.status == "ok" and result.stats.evictions == 0

    return _least(peak, 99, 200, is_enough)


def _least(peak: int, low: int, high: int, does: Callable[[int], bool]) -> int | None:
    """Between two percentages of the peak, of which `low` does not do; None if `high` does not."""
    if not does(peak * high // 100):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if does(peak * middle // 100) else (middle, high)
    return peak * high // 100


def layout_row(trace: recoup.Trace, policy: str, budget: int) -> dict[str, Any]:
    """The run at addresses in the pool, and the same run where only bytes count.

    cost: bytes evicted or moved beyond those that are evicted without addresses, over the bytes of
        allocations that found no room. None when no allocation did.
    scatter: `Stats.scatter`.
    time_ratio: of the run, over that without addresses.
    fragmentation_without: the published rate, without addresses.

    What compares the two is None unless both end.
    """
    here, free = (
        trace.simulate(budget, policy=policy, max_time_ratio=HOPELESS_RATIO, layout=layout)
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
