"""Trainings on one GPU at the same time, each in its own process with its own budget.

The bits of each are compared with those of plain trainings in its process, which also run at the
same time. The memory that the driver gives to all processes is compared with the sum of budgets.
"""

import gc
import multiprocessing
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

import torch
from budgets import GIB, STEPS, a_step
from nets import net_named
from rows import report, settings
from training import Compared, Job, Trained

import gpu
import recoup
from recoup._memory.device_memory import free_bytes, memory_bytes, outside_bytes
from recoup.bench.harness.turns import Ratios

T = TypeVar("T")
TIMED_STEPS = 40
LOOK_SECONDS = 0.002


@cache
def job_here(device: str, tiny: bool, net_name: str) -> Job:
    """The training of this process."""
    net = net_named(net_name, tiny)
    opened = gpu.open_device(device)
    gpu.make_repeatable(net.repeatable)
    return Job(net, opened, steps_of(tiny), net.batch)


def steps_of(tiny: bool) -> int:
    return 4 if tiny else TIMED_STEPS


def give_back(device: torch.device) -> None:
    """Gives memory that is cached to the driver."""
    gc.collect()
    outside_bytes(device)


def peak_here(*arguments: Any) -> int:
    return replace(job_here(*arguments), steps=STEPS).peak_bytes()


def plain_here(budget: int, *arguments: Any) -> list[Trained]:
    """Two plain trainings, and a short one in the budget, which loads all kernels."""
    job = job_here(*arguments)
    found = [job.plainly() for _ in range(2)]
    replace(job, steps=STEPS).in_budget(budget)
    give_back(job.device)
    return found


def in_budget_here(budget: int, *arguments: Any) -> tuple[Trained, recoup.Stats]:
    return job_here(*arguments).in_budget(budget)


class Process:
    """A process that trains one net in a budget.

    arguments: those of `job_here`.
    """

    def __init__(self, *arguments: Any) -> None:
        self._arguments = arguments
        self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
        self._budget = 0

    def set_budget(self, percent: int) -> None:
        """Sets the budget to a percentage of the peak, in whose measurement all memory is used."""
        self._budget = self._pool.submit(peak_here, *self._arguments).result() * percent // 100

    def start(self, train: Callable[..., T]) -> "Future[T]":
        return self._pool.submit(train, self._budget, *self._arguments)

    def end(self) -> None:
        self._pool.shutdown()


def driver_peak(device: torch.device, futures: "list[Future[Any]]", before: int) -> int:
    """Maximum of the bytes on the device beyond those before, until all calls have returned."""
    most = 0
    while not all(future.done() for future in futures):
        most = max(most, used_bytes(device) - before)
        time.sleep(LOOK_SECONDS)
    return most


def used_bytes(device: torch.device) -> int:
    """Bytes on the device that other processes use."""
    return memory_bytes(device) - free_bytes(device)


def main() -> int:
    given = settings()
    nets, percent, tiny = given["nets"], given["percent"], given["rehearsal"]
    device = gpu.open_device(given["device"])
    processes = [Process(given["device"], tiny, net) for net in nets]
    try:
        for process in processes:
            process.set_budget(percent)
        plain = [each.result() for each in [process.start(plain_here) for process in processes]]
        before = used_bytes(device)
        futures = [process.start(in_budget_here) for process in processes]
        driver = driver_peak(device, futures, before)
        ours = [future.result() for future in futures]
    finally:
        for process in processes:
            process.end()
    wrong = []
    for net, (first, second), (its, stats) in zip(nets, plain, ours, strict=True):
        repeats = first.digest == second.digest
        ratios = Ratios([second.seconds], [its.seconds])
        found = Compared(repeats, repeats and second.digest == its.digest, ratios, stats)
        figures = ratios.figures() | a_step(stats, steps_of(tiny))
        report(f"{net} in {percent} %", bits=found.bits, **figures)
        if found.differs:
            wrong.append(f"bits of {net} differ from those of a plain training")
        if stats.peak_bytes > stats.budget_bytes:
            wrong.append(f"{net} exceeds its budget by its own count")
    budgets = sum(stats.budget_bytes for _, stats in ours)
    report("both", **{"budget GiB": budgets / GIB, "peak by the driver GiB": driver / GIB})
    if driver > budgets:
        wrong.append(f"the driver gave {driver - budgets:,} bytes more than both budgets")
    print(", ".join(wrong))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
