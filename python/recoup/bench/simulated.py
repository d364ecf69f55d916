"""What simulation of a net's trace says of a policy: least budget, and what addresses cost."""

from typing import Any

import recoup

FEASIBLE_RATIO = 10.0
"""A run that takes more than that many times its plain op time counts as infeasible."""
HOPELESS_RATIO = 2 * FEASIBLE_RATIO
"""A case that takes more than that in simulation is not run on real tensors."""
LEAST_STEP = 0.01
"""Of the peak: how fine the least budget is."""


def least_budget(trace: recoup.Trace, policy: str, peak: int) -> int | None:
    """The least one that runs in simulation, to 1 % of the peak; found by bisection.

    None when not even the peak is enough.
    """

    def runs(percent: int) -> bool:
        result = trace.simulate(
            max(1, peak * percent // 100), policy=policy, max_time_ratio=FEASIBLE_RATIO
        )
        return result.status == "ok"

    low, high = 0, 100
    if not runs(high):
        return None
    step = max(1, round(100 * LEAST_STEP))
    while high - low > step:
        middle = (low + high) // 2
        low, high = (low, middle) if runs(middle) else (middle, high)
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
