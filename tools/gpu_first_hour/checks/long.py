"""A training of many steps in a budget: the bits of everything that it has changed at its end."""

import sys
from dataclasses import replace

from budgets import GIB, STEPS, a_step
from nets import net_named
from rows import report, settings
from training import Compared, Job

import gpu
import recoup
from recoup.bench.harness.turns import Ratios

TINY_STEPS = 40


def main() -> int:
    given = settings()
    device, tiny = gpu.open_device(given["device"]), given["rehearsal"]
    net = net_named(given["net"], tiny)
    gpu.make_repeatable(net.repeatable)
    job = Job(net, device, TINY_STEPS if tiny else given["steps"], net.batch)
    budget = replace(job, steps=STEPS).peak_bytes() * given["percent"] // 100
    name = f"{job.steps} steps in {given['percent']} %"
    budget_gib = {"budget GiB": budget / GIB}
    plain = job.plainly()
    try:
        ours, stats = job.in_budget(budget)
    except recoup.OutOfBudgetError:
        report(name, **budget_gib, result="out of budget")
        return 0
    ratios = Ratios([plain.seconds], [ours.seconds])
    same = ours.digest == plain.digest
    # Whether plain trainings are equal matters only if the bits differ.
    found = Compared(same or job.plainly().digest == plain.digest, same, ratios, stats)
    figures = ratios.figures() | a_step(stats, job.steps)
    report(name, bits=found.bits, **budget_gib, **figures)
    if found.differs:
        print("bits differ from those of a plain training")
    return int(found.differs)


if __name__ == "__main__":
    sys.exit(main())
