"""Trains a net in a budget, alternating with plain trainings: time, bits, evictions, copies.

A budget that is too small is a result and no failure. Bits that differ from plain are a failure.
"""

import sys
from typing import Any

from nets import net_named
from rows import report, settings
from training import Job, compare, spill_of

import gpu
import recoup

STEPS = 8
GIB = 1 << 30


def main() -> int:
    given = settings()
    device, tiny = gpu.open_device(given["device"]), given["rehearsal"]
    net = net_named(given["net"], tiny)
    gpu.make_repeatable(net.repeatable)
    spill: dict[str, Any] = {"spill": spill_of(tiny)} if given.get("spill") else {}
    # An op on a list needs all of it at once, for which a small budget with a tier has no room.
    job = Job(net, device, 4 if tiny else STEPS, net.batch, foreach=not spill)
    peak = job.peak_bytes()
    budget = peak * given["percent"] // 100
    name = f"{given['percent']} %" + (" with pinned memory" if spill else "")
    common = {"plain GiB": peak / GIB, "budget GiB": budget / GIB}
    try:
        for found in compare(job, budget, **spill):
            figures = found.ratios.figures() | a_step(found.stats, job.steps)
            report(name, bits=found.bits, **common, **figures)
    except recoup.OutOfBudgetError as error:
        least = {"needs GiB": error.least_bytes / GIB} if error.least_bytes else {}
        report(name, **common, result="out of budget", **least)
        return 0
    if found.differs:
        print(f"{net.name} in {name}: bits differ from those of a plain training")
    return int(found.differs)


def a_step(stats: recoup.Stats, steps: int) -> dict[str, Any]:
    """Averages per step.

    Times are the host's: on a GPU they contain no kernels. `search` is the time to choose victims,
    `planning` the time that the program waited for a plan, `room` that of evictions and moves.
    """
    figures: dict[str, Any] = {
        "peak GiB": (stats.peak_bytes - stats.external_bytes) / GIB,
        "ops": stats.op_count // steps,
        "evictions": stats.evictions // steps,
        "replays": stats.replays // steps,
        "moves": stats.moves // steps,
        "moved GiB": stats.moved_bytes / steps / GIB,
        "replays ms": stats.replay_ns / steps / 1e6,
        "search ms": stats.search_ns / steps / 1e6,
        "planning ms": stats.planning_ns / steps / 1e6,
        "room ms": (stats.bookkeeping_ns + stats.move_ns) / steps / 1e6,
    }
    if stats.spills > 0:
        figures |= {
            "out GiB": stats.spilled_bytes / steps / GIB,
            "in GiB": stats.fetched_bytes / steps / GIB,
            "host waited ms": (stats.spill_ns + stats.fetch_ns) / steps / 1e6,
        }
    return figures


if __name__ == "__main__":
    sys.exit(main())
