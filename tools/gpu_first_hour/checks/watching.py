"""recoup's cost when nothing is evicted: ops of three sizes, and a training step.

Ops are issued without waiting, as programs do, so that small ones show the host's time and large
ones the device's time. Plain rounds and rounds in a budget alternate.
"""

import statistics
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from nets import net_named
from rows import report, settings
from training import Job, compare

import gpu
import recoup
from recoup._memory.device_memory import free_bytes
from recoup.bench.harness.turns import Ratios, pairs

ROUNDS = 9
SIZES = {"16 floats": 16, "64 Ki floats": 1 << 16, "16 Mi floats": 1 << 24}
CALLS = {16: 5000, 1 << 16: 5000, 1 << 24: 200}


def ns_of_add(a: torch.Tensor, calls: int, device: torch.device) -> float:
    gpu.synchronize(device)
    start = time.perf_counter_ns()
    for _ in range(calls):
        torch.add(a, a)
    gpu.synchronize(device)
    return (time.perf_counter_ns() - start) / calls


def measure_op(name: str, size: int, calls: int, device: torch.device, budget: int) -> None:
    def ns_inside(scope: AbstractContextManager[Any]) -> float:
        with scope:
            a = torch.ones(size, device=device)
            ns_of_add(a, calls // 10, device)  # the first use in a budget registers the tensor
            return ns_of_add(a, calls, device)

    ratios = Ratios()
    for plain, ours in pairs(
        ROUNDS,
        lambda: ns_inside(nullcontext()),
        lambda _: ns_inside(recoup.budget(budget, device=device)),
    ):
        ratios.add(plain, ours)
    plain, ours = map(statistics.median, (ratios.plain, ratios.ours))
    report(
        f"add of {name}",
        plain_ops_a_second=round(1e9 / plain),
        watched_ops_a_second=round(1e9 / ours),
        more_ns=ours - plain,
        over_plain=ratios.median,
        rounds=ROUNDS,
    )


def main() -> int:
    given = settings()
    device, tiny = gpu.open_device(given["device"]), given["rehearsal"]
    budget = free_bytes(device) // 2
    for name, size in SIZES.items():
        if not tiny or size <= 1 << 16:
            measure_op(name, size, 50 if tiny else CALLS[size], device, budget)
    net = net_named("gpt2", tiny)
    gpu.make_repeatable(net.repeatable)
    # So small that the host limits the speed.
    batch = 1
    job = Job(net, device, 4 if tiny else 12, batch)
    *_, found = compare(job, budget // 2)
    stats = found.stats
    ops, figures = stats.op_count // job.steps, found.ratios.figures()
    report(f"step of gpt2, {batch} row", ops=ops, evictions=stats.evictions, **figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
