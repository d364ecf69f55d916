"""The largest batch of a net that trains in the GPU's memory, plainly or with recoup in all of it.

The batch is doubled until it does not fit, and then halved towards the largest that does.
"""

import gc
import sys
import time
from collections.abc import Callable

import gpu
import torch
from nets import net_named
from rows import report, settings
from training import Job, Trained

from recoup.device_memory import free_bytes, outside_bytes

STEPS = 3
STEP_SECONDS = 4.0
"""A batch whose steps take longer is not gone beyond."""
TIME_SHARE = 0.5
"""Of the time limit: after that nothing more is tried."""
DOUBLE_BYTES = 32 * gpu.MIB
"""The memory of the double in a rehearsal, which a few doublings exceed."""
RESOLUTION = 0.06


def train(job: Job, way: str) -> Trained | None:
    """None: it does not fit."""
    try:
        if way == "plain":
            return job.plainly()
        room = free_bytes(job.device) - outside_bytes(job.device)
        return job.in_budget(int(0.92 * room))[0]
    except torch.OutOfMemoryError:  # OutOfBudgetError is one
        return None


def tries(job_of: Callable[[int], Job], way: str) -> Callable[[int], float | None]:
    """A function that says how many seconds a step of that batch takes; None: it does not fit."""

    def attempt(batch: int) -> float | None:
        job = job_of(batch)
        start = time.perf_counter()
        trained = train(job, way)
        if trained is None:
            # Not before the error is gone, whose traceback holds the tensors.
            gc.collect()
            gpu.module(job.device).empty_cache()
            report(f"batch {batch}", fits=False, s=time.perf_counter() - start)
            return None
        rate = batch / trained.seconds
        report(f"batch {batch}", fits=True, step_ms=1e3 * trained.seconds, a_second=rate)
        return trained.seconds

    return attempt


def largest(first: int, attempt: Callable[[int], float | None], deadline: float) -> int:
    """By doubling, and then by halving what lies between."""
    fits, beyond, batch = 0, 0, first
    while True:
        seconds = attempt(batch)
        if seconds is None:
            beyond = batch
            break
        fits = batch
        if seconds > STEP_SECONDS or time.monotonic() > deadline:
            return fits
        batch *= 2
    while beyond - fits > max(1, RESOLUTION * fits) and time.monotonic() < deadline:
        middle = (fits + beyond) // 2
        fits, beyond = (fits, middle) if attempt(middle) is None else (middle, beyond)
    return fits


def main() -> int:
    told = settings()
    device, tiny = gpu.open_device(told["device"], DOUBLE_BYTES), told["rehearsal"]
    net, way = net_named(told["net"], tiny), told["way"]
    first = net.batch
    attempt = tries(lambda batch: Job(net, device, STEPS, batch), way)
    deadline = time.monotonic() + TIME_SHARE * told["seconds"]
    found = largest(first, attempt, deadline)
    report("largest", batch=found)
    if found == 0:
        print(f"not even the first batch, of {first}, fits")
    return int(found == 0)


if __name__ == "__main__":
    sys.exit(main())
