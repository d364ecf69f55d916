"""Where the time of a step goes, by PyTorch's profiler: kernels, copies, calls of CUDA's runtime.

Profiled steps are slower than others. The figures show proportions, not the time of a step.
"""

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from nets import net_named
from rows import report, settings, skip
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile
from training import Job

import gpu

STEPS = 6
CALLS = 6
"""Number of runtime functions to show, those with the highest total time."""


def a_step(run: Callable[[], Any], steps: int) -> dict[str, Any]:
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        run()
    times: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for event in profiler.events():
        on_device = event.device_type == DeviceType.CUDA
        name = event.name
        if on_device and not name.lower().startswith("mem"):
            name = "kernels"
        elif not on_device and not name.startswith("cu"):
            continue
        counts[name] += 1
        times[name] += event.time_range.elapsed_us()
    device = {name for name in times if name == "kernels" or name.lower().startswith("mem")}
    calls = [name for name, _ in times.most_common() if name not in device][:CALLS]
    return {
        name: f"{counts[name] / steps:.0f} in {times[name] / steps / 1e3:.2f} ms"
        for name in (*sorted(device), *calls)
    }


def main() -> int:
    given = settings()
    device = gpu.open_device(given["device"])
    if given["rehearsal"]:
        skip("the profiler sees no work of a device that stands for a GPU")
    net = net_named(given["net"], given["rehearsal"])
    gpu.make_repeatable(net.repeatable)
    job = Job(net, device, STEPS, net.batch)
    job.plainly()
    budget = job.peak_bytes() * given["percent"] // 100
    job.in_budget(budget)
    report("plain, a step", **a_step(job.plainly, job.steps))
    report(f"{given['percent']} %, a step", **a_step(lambda: job.in_budget(budget), job.steps))
    return 0


if __name__ == "__main__":
    sys.exit(main())
