"""One training in this process: `python -m recoup.bench.real.worker JOB` prints its result.

JOB and the result are JSON.
"""

import json
import resource
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

import recoup
from recoup.bench.blocks import in_segments
from recoup.bench.nets import Net
from recoup.bench.nets.real import real_net_named
from recoup.bench.trial import call_in, compute_overhead, train


@dataclass(frozen=True)
class Job:
    """Parameters of a training."""

    net: str
    steps: int
    seed: int
    checkpoints: bool = False
    budget_bytes: int | None = None
    """The budget; None: without recoup."""
    spill: str | None = None
    """Size of the spill tier; None: no tier."""
    spill_dir: str | None = None


def status_bytes(name: str) -> int:
    """VmRSS, the resident memory of this process, or VmHWM, its peak."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise KeyError(name)


def page_faults() -> int:
    """Page faults that needed no disk."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def run(job: Job) -> dict[str, Any]:
    """Measurements and digests of the training, or the failure of its budget."""
    net = real_net_named(job.net).net
    if job.checkpoints:
        net = in_segments(net, partial(checkpoint, use_reentrant=False), 1)
    with torch.device("meta"):
        net.make()  # loads libraries without taking memory, so that the training does not count it
    if job.budget_bytes is None:
        return {"status": "ok", **_measured(net, job)}
    try:
        found, stats = call_in(
            job.budget_bytes, lambda: _measured(net, job), spill=job.spill, spill_dir=job.spill_dir
        )
    except recoup.OutOfBudgetError as error:
        note = str(error).partition("\n")[0]
        return {"status": "out of budget", "note": note, "least_bytes": error.least_bytes}
    return {"status": "ok", **found, **_described(stats)}


def _measured(net: Net, job: Job) -> dict[str, Any]:
    resident, faults = status_bytes("VmRSS"), page_faults()
    seconds, digests = train(net, job.steps, job.seed)
    return {
        "seconds": seconds,
        "digests": digests,
        "rss_before_bytes": resident,
        "peak_rss_bytes": status_bytes("VmHWM"),
        "page_faults": page_faults() - faults,
    }


def _described(stats: recoup.Stats) -> dict[str, Any]:
    return {
        "charged_bytes": stats.peak_bytes,
        "replays": stats.replays,
        "evicted_bytes": stats.evicted_bytes,
        "written_bytes": stats.spilled_bytes,
        "read_bytes": stats.fetched_bytes,
        "compute_overhead": compute_overhead(stats),
    }


if __name__ == "__main__":
    print(json.dumps(run(Job(**json.loads(sys.argv[1])))))
