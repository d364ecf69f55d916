"""recoup's cost when nothing is evicted: ops of three sizes, and a training step.

Ops are issued without waiting, as programs do, so that small ones show the host's time and large
ones the device's time. Plain rounds and rounds in a budget alternate.
"""

import statistics
import sys
import time

import torch
from nets import net_named
from rows import report, settings
from training import Job, Pairs

import gpu
import recoup
from recoup._memory.device_memory import free_bytes

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
    plain, ours = [], []
    for _ in range(ROUNDS + 1):
        a = torch.ones(size, device=device)
        ns_of_add(a, calls // 10, device)
        plain.append(ns_of_add(a, calls, device))
        with recoup.budget(budget, device=device):
            b = torch.ones(size, device=device)
            ns_of_add(b, calls // 10, device)  # the first use registers the tensor
            ours.append(ns_of_add(b, calls, device))
    del plain[0], ours[0]
    ratios = [o / p for o, p in zip(ours, plain, strict=True)]
    report(
        f"add of {name}",
        plain_ops_a_second=round(1e9 / statistics.median(plain)),
        watched_ops_a_second=round(1e9 / statistics.median(ours)),
        more_ns=statistics.median(ours) - statistics.median(plain),
        over_plain=statistics.median(ratios),
        rounds=len(ratios),
    )


def main() -> int:
    told = settings()
    device, tiny = gpu.open_device(told["device"]), told["rehearsal"]
    budget = free_bytes(device) // 2
    for name, size in SIZES.items():
        if not tiny or size <= 1 << 16:
            measure_op(name, size, 50 if tiny else CALLS[size], device, budget)
    net = net_named("gpt2", tiny)
    gpu.make_repeatable(net.repeatable)
    # So small that the host limits the speed.
    batch = 1
    job = Job(net, device, 4 if tiny else 12, batch)
    pairs = Pairs([], [])
    for at in range(ROUNDS // 2 + 2):
        plain, (ours, stats) = job.plainly(), job.in_budget(budget // 2)
        if at > 0:
            pairs.plain.append(plain.seconds)
            pairs.ours.append(ours.seconds)
    ops = stats.op_count // job.steps
    report(f"step of gpt2, {batch} row", ops=ops, evictions=stats.evictions, **pairs.figures())
    return 0


if __name__ == "__main__":
    sys.exit(main())
