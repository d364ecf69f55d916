"""The host's time of a replay, of single ops and in steps of GPT-2.

A GPU's launch queue holds about a thousand kernels. If it is full, a launch waits until a kernel
ends, so the time of a replay with a full queue shows the GPU's time and not recoup's. cuBLASLt
selects a kernel at each call by a heuristic, which cuBLAS and an addition do not use. So single ops
are issued and replayed with an empty queue and with a full one, and steps have one row and a whole
batch.
"""

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from budgets import STEPS, a_step
from nets import net_named
from rows import report, settings
from torch import Tensor
from training import Job

import gpu
import recoup
from recoup._memory.device_memory import free_bytes

CALLS, TINY_CALLS, WARM = 100, 10, 5
DEPTH = 4096
"""Kernels that fill a launch queue."""
PERCENTS = (35, 50, 70, 80, 90)
"""Budgets of a step, of which the first one that holds it is used."""

Op = Callable[[], Tensor]
Wait = Callable[[], None]
"""Called before each op: it empties the launch queue, or keeps it full."""


def ops(device: torch.device, tiny: bool) -> dict[str, Op]:
    """Ops of a layer of GPT-2 on one row."""
    rows, width = (16, 64) if tiny else (512, 768)
    dtype = torch.bfloat16 if gpu.is_real(device) else torch.float32
    x, weight, bias = (
        torch.randn(shape, device=device, dtype=dtype)
        for shape in ((rows, width), (width, width), (width,))
    )
    return {
        "add": lambda: torch.add(x, x),
        "matmul (cuBLAS)": lambda: x @ weight,
        "matmul and bias (cuBLASLt)": lambda: F.linear(x, weight, bias),
    }


def full(device: torch.device, tiny: bool) -> Wait:
    x = torch.ones(1 << 10 if tiny else 1 << 24, device=device)

    def issue(count: int = 2) -> None:
        for _ in range(count):
            torch.add(x, x)  # takes longer than a launch

    issue(TINY_CALLS if tiny else DEPTH)
    return issue


def empty(device: torch.device, tiny: bool) -> Wait:
    return lambda: gpu.synchronize(device)


QUEUES = {"empty": empty, "full": full}


def plain_ns(op: Op, wait: Wait, calls: int) -> Iterator[int]:
    for _ in range(calls):
        wait()
        start = time.perf_counter_ns()
        op()
        yield time.perf_counter_ns() - start


def replay_ns(op: Op, wait: Wait, calls: int, run: recoup.Run) -> Iterator[int]:
    y = op()
    for _ in range(calls):
        recoup.evict(y)
        wait()
        before = run.stats()
        recoup.materialize(y)
        after = run.stats()
        assert after.replays == before.replays + 1
        yield after.replay_ns - before.replay_ns


def measure_op(name: str, queue: str, device: torch.device, tiny: bool) -> None:
    def inside() -> tuple[Op, Wait]:
        return ops(device, tiny)[name], QUEUES[queue](device, tiny)

    calls = TINY_CALLS if tiny else CALLS
    plain = list(plain_ns(*inside(), WARM + calls))
    with recoup.budget(free_bytes(device) // 2, device=device) as run:
        replays = list(replay_ns(*inside(), WARM + calls, run))
    gpu.synchronize(device)
    plain_us, replay_us = (statistics.median(each[WARM:]) / 1e3 for each in (plain, replays))
    figures = {"plain us": plain_us, "replay us": replay_us, "own us": replay_us - plain_us}
    report(f"{name}, {queue} queue", **figures, calls=calls)


def measure_step(job: Job) -> None:
    """A step in the least of the budgets that hold it."""
    # One row needs the most memory in an optimizer's op on whole lists, where replays do not help.
    peak = job.peak_bytes()
    for percent in PERCENTS:
        budget = peak * percent // 100
        if budget < gpu.LEAST_BYTES:  # of a tiny net
            continue
        try:
            _, stats = job.in_budget(budget)
        except recoup.OutOfBudgetError:
            continue
        replays = max(1, stats.replays)
        figures: dict[str, Any] = {
            "replay us": stats.replay_ns / replays / 1e3,
            # By the model of costs, which contains the kernel's time.
            "cost us": stats.replay_cost_ns / replays / 1e3,
        }
        name = f"step of {job.net.name}, batch of {job.batch}, in {percent} %"
        report(name, **figures, **a_step(stats, job.steps))
        return


def main() -> int:
    given = settings()
    device, tiny = gpu.open_device(given["device"]), given["rehearsal"]
    net = net_named("gpt2", tiny)
    gpu.make_repeatable(net.repeatable)
    for name in ops(device, tiny):
        for queue in QUEUES:
            measure_op(name, queue, device, tiny)
    for batch in (1, net.batch):
        measure_step(Job(net, device, 4 if tiny else STEPS, batch, foreach=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
