"""The largest batch of a net that fits into the GPU's memory, plainly or with recoup in all of it.

The batch is doubled until it does not fit; then bisection finds the largest that does.
"""

import gc
import os
import sys
import threading
import time
from collections.abc import Callable

import torch
from nets import net_named
from rows import report, settings
from training import Job, Trained

import gpu
from recoup._memory.device_memory import free_bytes, outside_bytes

STEPS = 3
TIME_FRACTION = 0.9
"""Part of the time limit after which the search ends with the largest batch that fits so far."""
DOUBLE_BYTES = 32 * gpu.MIB
"""Memory of the double in a rehearsal, which a few doublings exceed."""
RESOLUTION = 0.06


def train(job: Job, way: str) -> Trained | None:
    """Trains with the job's batch; None: it does not fit."""
    try:
        if way == "plain":
            return job.plainly()
        room = free_bytes(job.device) - outside_bytes(job.device)
        return job.in_budget(int(0.92 * room))[0]
    except torch.OutOfMemoryError:  # OutOfBudgetError is one
        return None


def tries(job_of: Callable[[int], Job], way: str) -> Callable[[int], bool]:
    """Returns a function that tells whether a batch fits."""

    def attempt(batch: int) -> bool:
        job = job_of(batch)
        start = time.perf_counter()
        trained = train(job, way)
        if trained is None:
            # Only now: the traceback of the error has kept the tensors alive.
            gc.collect()
            gpu.module(job.device).empty_cache()
            report(f"batch {batch}", fits=False, s=time.perf_counter() - start)
            return False
        rate = batch / trained.seconds
        report(f"batch {batch}", fits=True, step_ms=1e3 * trained.seconds, a_second=rate)
        return True

    return attempt


class Search:
    """Searches for the largest batch that fits: by doubling, then by bisection."""

    def __init__(self, first: int, attempt: Callable[[int], bool]) -> None:
        self._attempt = attempt
        self._next = first
        self.fits = 0

    def run(self) -> int:
        beyond = 0
        while beyond == 0 or beyond - self.fits > max(1, RESOLUTION * self.fits):
            if self._attempt(self._next):
                self.fits = self._next
            else:
                beyond = self._next
            self._next = 2 * self.fits if beyond == 0 else (self.fits + beyond) // 2
        return self.fits

    def report_cut(self) -> None:
        """Reports the result at the end of the time; trainings short of memory can take it all."""
        report("largest", batch=self.fits, cut_off_in=f"batch {self._next}")


def stop_after(seconds: float, search: Search) -> None:
    """Ends the process after that time, with the result so far."""

    def end() -> None:
        search.report_cut()
        os._exit(int(search.fits == 0))

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


def main() -> int:
    given = settings()
    device, tiny = gpu.open_device(given["device"], DOUBLE_BYTES), given["rehearsal"]
    net, way = net_named(given["net"], tiny), given["way"]
    first = net.batch
    attempt = tries(lambda batch: Job(net, device, STEPS, batch), way)
    search = Search(first, attempt)
    stop_after(TIME_FRACTION * given["seconds"], search)
    found = search.run()
    report("largest", batch=found)
    if found == 0:
        print(f"not even the first batch, of {first}, fits")
    return int(found == 0)


if __name__ == "__main__":
    sys.exit(main())
