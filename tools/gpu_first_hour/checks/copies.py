"""Copies between a GPU and pinned memory: bandwidth, and how much of them a training hides."""

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from budgets import GIB, a_step
from nets import net_named
from rows import report, settings
from torch.autograd import DeviceType
from training import Job, compare, spill_of

import gpu

ROUNDS = 5
PERCENT = 40
"""Budget in percent of the peak: so small that most values kept for backward are copied."""

Interval = tuple[float, float]


def bandwidth(device: torch.device, size: int) -> None:
    """Measures PyTorch's own copies in each direction, and in both at once."""
    there = torch.empty(size, dtype=torch.uint8, device=device)
    back = torch.empty(size, dtype=torch.uint8, device=device)
    pinned = [torch.empty(size, dtype=torch.uint8, pin_memory=gpu.is_real(device)) for _ in "12"]
    streams = [torch.Stream(device=device) for _ in "12"]

    def out() -> None:
        with streams[0]:
            pinned[0].copy_(there, non_blocking=True)

    def come_in() -> None:
        with streams[1]:
            back.copy_(pinned[1], non_blocking=True)

    def both() -> None:
        out()
        come_in()

    for name, copy, count in (
        ("to the host", out, 1),
        ("to the GPU", come_in, 1),
        ("both", both, 2),
    ):
        times = []
        for _ in range(ROUNDS + 1):
            gpu.synchronize(device)
            start = time.perf_counter()
            copy()
            gpu.synchronize(device)
            times.append(time.perf_counter() - start)
        rate = count * size / statistics.median(times[1:]) / 1e9
        report(f"{name}, {size >> 20} MiB pinned", gb_per_second=rate, rounds=ROUNDS)


def hidden_by_kernels(train: Callable[[], Any]) -> dict[str, Any]:
    """Time of copies by PyTorch's profiler, and the fraction of it during which kernels ran."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        train()
    copies: list[Interval] = []
    kernels: list[Interval] = []
    for event in profiler.events():
        if event.device_type == DeviceType.CUDA:
            span = (event.time_range.start, event.time_range.end)
            name = event.name.lower()
            if "memcpy" in name and "dtod" not in name:
                copies.append(span)
            elif not name.startswith(("memcpy", "memset")):
                kernels.append(span)
    if not copies:
        return {"copies": "none seen by the profiler"}
    total = sum(end - start for start, end in copies)
    hidden = overlap(copies, merged(kernels))
    return {"copies": len(copies), "copies ms": total / 1e3, "hidden by kernels": hidden / total}


def merged(spans: list[Interval]) -> list[Interval]:
    """The same time without overlaps, in order."""
    found: list[Interval] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def overlap(spans: list[Interval], others: list[Interval]) -> float:
    """The time of `spans` that is within `others`, which must not overlap one another."""
    return sum(
        max(0.0, min(end, other_end) - max(start, other_start))
        for start, end in spans
        for other_start, other_end in others
    )


def main() -> int:
    given = settings()
    device, tiny = gpu.open_device(given["device"]), given["rehearsal"]
    bandwidth(device, (1 if tiny else 512) << 20)
    net = net_named("gpt2", tiny)
    gpu.make_repeatable(net.repeatable)
    job = Job(net, device, 4 if tiny else 8, net.batch, foreach=False)
    spill = spill_of(tiny)
    budget = job.peak_bytes() * PERCENT // 100
    *_, found = compare(job, budget, spill=spill)
    if found.differs:
        print("bits differ from those of a plain training")
        return 1
    stats = found.stats
    moved = (stats.spilled_bytes + stats.fetched_bytes) / job.steps
    step = statistics.median(found.ratios.ours)
    report(
        f"gpt2 in {PERCENT} % with pinned memory",
        **found.ratios.figures(),
        **a_step(stats, job.steps),
        moved_gib=moved / GIB,
        gb_per_second=moved / step / 1e9,
    )
    if not tiny:
        traced = Job(net, device, 3, net.batch, foreach=False)
        found = hidden_by_kernels(lambda: traced.in_budget(budget, spill=spill))
        report("the same, by the profiler", **found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
