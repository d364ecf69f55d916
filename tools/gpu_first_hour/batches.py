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
TIME_SHARE = 0.8
"""Of the time limit: no training starts that would end after that, to judge by the one before."""
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


def tries(job_of: Callable[[int], Job], way: str) -> Callable[[int], bool]:
    """A function that says whether a batch fits."""

    def attempt(batch: int) -> bool:
        job = job_of(batch)
        start = time.perf_counter()
        trained = train(job, way)
        if trained is None:
            # Not before the error is gone, whose traceback holds the tensors.
            gc.collect()
            gpu.module(job.device).empty_cache()
            report(f"batch {batch}", fits=False, s=time.perf_counter() - start)
            return False
        rate = batch / trained.seconds
        report(f"batch {batch}", fits=True, step_ms=1e3 * trained.seconds, a_second=rate)
        return True

    return attempt


def largest(first: int, attempt: Callable[[int], bool], deadline: float) -> tuple[int, str]:
    """The largest batch that was found to fit, and why it is not known to be the largest of all.

    By doubling, and then by halving what lies between.
    """
    fits, beyond, batch, took = 0, 0, first, 0.0
    while beyond == 0 or beyond - fits > max(1, RESOLUTION * fits):
        # A training takes as long as its batch is large, or longer when it is short of memory.
        expected = took * batch / fits if fits > 0 else 0.0
        if time.monotonic() + expected > deadline:
            return fits, f"batch {batch} would have taken {expected:.0f} s"
        start = time.monotonic()
        if attempt(batch):
            fits, took = batch, time.monotonic() - start
        else:
            beyond = batch
        batch = 2 * batch if beyond == 0 else (fits + beyond) // 2
    return fits, ""


def main() -> int:
    told = settings()
    device, tiny = gpu.open_device(told["device"], DOUBLE_BYTES), told["rehearsal"]
    net, way = net_named(told["net"], tiny), told["way"]
    first = net.batch
    attempt = tries(lambda batch: Job(net, device, STEPS, batch), way)
    deadline = time.monotonic() + TIME_SHARE * told["seconds"]
    found, cut = largest(first, attempt, deadline)
    report("largest", batch=found, **({"not beyond": cut} if cut else {}))
    if found == 0:
        print(f"not even the first batch, of {first}, fits")
    return int(found == 0)


if __name__ == "__main__":
    sys.exit(main())
