"""What `recoup suggest --spill` prints about the copies of a spill tier."""

from collections.abc import Sequence

from recoup._memory.sizes import format_bytes
from recoup._reporting.tables import plain_table, print_table
from recoup.offline.tier_use import SPEEDS, TierUse

_RUN_STEPS = 10_000
_SHOWN_SPEEDS = (0.2, 0.8, 3.2)  # GB/s: a network disk, a virtual disk, an SSD


def print_tier_use(uses: Sequence[TierUse], max_time_ratio: float) -> None:
    """Prints what a training writes and reads in each budget, and which disk it needs.

    max_time_ratio: a slower step is not accepted.
    """
    if not uses:
        return
    print("\nCopies to and from the spill tier in these budgets:")
    print()
    table = plain_table("", *(one.budget for one in uses))
    table.add_row("written a step", *(format_bytes(one.written_step_bytes) for one in uses))
    table.add_row("read a step", *(format_bytes(one.read_step_bytes) for one in uses))
    written = [format_bytes(_RUN_STEPS * one.written_step_bytes) for one in uses]
    table.add_row(f"written in {_RUN_STEPS:,} steps", *written)
    for speed in _SHOWN_SPEEDS:
        table.add_row(f"step time, {speed} GB/s each way", *(_at(one, speed) for one in uses))
    table.add_row("step time without the tier", *map(_without, uses))
    print_table(table)
    print()
    for one in uses:
        print(_conclusion(one, max_time_ratio))


def _at(use: TierUse, speed: float) -> str:
    ratio = next(each.time_ratio for each in use.times if each.gb_per_second == speed)
    return "-" if ratio is None else f"{ratio:.2f}x"


def _without(use: TierUse) -> str:
    without = use.without
    if without.status == "too slow":
        return "slow" if without.time_ratio is not None else "stopped"
    if without.status != "ok":
        return "-"
    return f"{without.time_ratio:.2f}x{'' if without.holds else ' ?'}"


def _conclusion(use: TierUse, max_time_ratio: float) -> str:
    if use.without.status == "too slow":
        return f"Without the tier, a step in {use.budget} takes more than {max_time_ratio:g}x."
    if use.without.status != "ok":
        return f"Without the tier, {use.budget} is not enough."
    if not use.without.holds:
        return f"Without the tier, {use.budget} is enough only if costs are the recorded ones."
    if use.quicker_from is None:
        return (
            f"In {use.budget}, recomputation alone is as quick as a disk of {SPEEDS[-1]} GB/s, or "
            "quicker: leave out --spill."
        )
    return (
        f"In {use.budget}, the tier is quicker than recomputation alone on a disk of "
        f"{use.quicker_from} GB/s or more."
    )
