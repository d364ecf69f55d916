"""Peak memory of a training by PyTorch's own count: the same judge for all ways to train."""

import gc
import os

from torch.profiler import ProfilerActivity, profile

from recoup.bench.nets import Net
from recoup.bench.trial import train


def judged_peak_bytes(net: Net, steps: int, seed: int) -> int:
    """Maximum bytes that tensors of the training had at any time, model and optimizer included.

    From the profiler's `[memory]` events, one for each allocation and free of the CPU's allocator.
    """
    # Otherwise the profiler prints messages when it starts and stops.
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    gc.collect()  # so that only tensors of the training die while it is measured
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        train(net, steps, seed)
    assert profiler.profiler is not None and profiler.profiler.kineto_results is not None
    changes = [
        (event.start_ns(), event.nbytes())
        for event in profiler.profiler.kineto_results.events()
        if event.name() == "[memory]"
    ]
    held = peak = 0
    for _, change in sorted(changes, key=lambda change: change[0]):
        held += change
        peak = max(peak, held)
    return peak
