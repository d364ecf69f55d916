"""Measures the host's part of a training step on a GPU, without a GPU.

    HOST=1 tools/test_cuda_stand_in.sh PYTHON VERSION --nets gpt2 resnet50

The host-only mode of the stand-in for CUDA (tests/cuda_stand_in/device/streams.h) launches the
kernels of PyTorch, which do nothing. Each net is trained in budgets that are percentages of its
peak, and in the last one with a spill tier in pinned memory. A run in a budget alternates with a
plain one. Prints a table in Markdown with the figures of a step after the warm-up:

plain, ours      CPU time in milliseconds without the planner's thread: medians over the pairs of
                 the medians over the steps
search ... wait  the engine's own times in milliseconds, in the last run
ops ... heap     counts of the last run: decisions of the engine, calls of CUDA, and allocations on
                 the heap beyond those of a plain step. They do not depend on the machine's speed.
"""

import dataclasses
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from measure import ROOT, add_json, parser_of, say, write_result

import recoup
from recoup.bench.harness.tables import print_markdown
from recoup.bench.harness.turns import Ratios, pairs

sys.path[:0] = [
    str(ROOT / "tools" / "gpu_first_hour"),
    str(ROOT / "tests" / "cuda_stand_in" / "python"),
]

import nets  # noqa: E402
import recoup_cuda_stand_in as stand_in  # noqa: E402
import training  # noqa: E402

GIB = 1 << 30
NETS = ("gpt2", "resnet50", "llama", "diffusion")
TIMES = {
    "search": "search_ns", "room": "bookkeeping_ns", "move": "move_ns", "replay": "replay_ns",
    "spill": "spill_ns", "fetch": "fetch_ns", "wait": "planning_ns",
}  # fmt: skip
DECISIONS = {
    "ops": "op_count", "plans": "plans", "evictions": "evictions", "listed": "listed_evictions",
    "replays": "replays", "moves": "moves", "spills": "spills", "fetches": "fetches",
}  # fmt: skip
CALLS = {
    "waits": "cudaStreamWaitEvent", "records": "cudaEventRecordWithFlags",
    "queries": "cudaEventQuery", "copies": "cudaMemcpyAsync",
    "capture queries": "cudaStreamIsCapturing",
}  # fmt: skip
HEAP = "heap"
COLUMNS = {
    "net": "{net} {percent} %{tier}",
    "plain": "{plain_ms:.1f}", "ours": "{ours_ms:.1f}", "over": "{ratio:.2f}",
    **{name: f"{{{name}:.1f}}" for name in TIMES},
    **{name: f"{{{name}:,.0f}}" for name in (*DECISIONS, *CALLS, HEAP)},
}  # fmt: skip


PLANNER = "recoup-planner"
"""Name of the thread that plans while the program runs, which is no part of a step."""


def threads() -> Iterator[int]:
    """The threads that run but for the planner's."""
    for thread in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            if (thread / "comm").read_text().strip() != PLANNER:
                yield int(thread.name)


def cpu_seconds() -> float:
    """CPU time of `threads()`."""
    # Linux' clock of a thread's CPU time: see clock_getcpuclockid.
    return sum(time.clock_gettime_ns((~thread << 3) | 6) for thread in threads()) / 1e9


class Steps:
    """CPU times of the steps of one training, and what those after the warm-up have counted."""

    def __init__(self, warm: int) -> None:
        self.warm = warm
        self.run: recoup.Run | None = None
        self.times: list[float] = []
        self.counts: list[dict[str, int]] = []

    def before(self, step: int) -> None:
        """Called before each step and after the last."""
        self.times.append(cpu_seconds())
        if step >= self.warm:
            self.counts.append(self._counted())

    @contextmanager
    def inside(self, run: recoup.Run) -> Iterator[None]:
        """Counts what this run counts."""
        self.run = run
        yield

    def _counted(self) -> dict[str, int]:
        counted = stand_in.all_calls() | {HEAP: sum(map(stand_in.heap_allocations, threads()))}
        stats = dataclasses.asdict(self.run.stats()) if self.run is not None else {}
        return counted | {name: value for name, value in stats.items() if isinstance(value, int)}

    @property
    def seconds(self) -> float:
        """Median CPU time of a step after the warm-up."""
        times = self.times[self.warm :]
        return statistics.median(b - a for a, b in pairwise(times))

    def of_step(self, name: str) -> float:
        """Average count of a step after the warm-up."""
        first, *others = (counted.get(name, 0) for counted in self.counts)
        return (others[-1] - first) / len(others)


def trained(job: training.Job, warm: int, budget: int | None, **options: Any) -> Steps:
    """Trains, in a budget if one is given. Raises OutOfBudgetError."""
    steps = Steps(warm)
    job = dataclasses.replace(job, before=steps.before)
    if budget is None:
        job.plainly()
    else:
        job.in_budget(budget, guard=steps.inside, **options)
    return steps


def figures_of(job: training.Job, budget: int, given: Any, **options: Any) -> dict[str, Any]:
    """The figures of a row. Raises OutOfBudgetError."""
    planning = recoup.Options(planning=given.planning)
    ratios = Ratios()
    for plain, ours in pairs(
        given.rounds,
        lambda: trained(job, given.warm, None),
        lambda _: trained(job, given.warm, budget, options=planning, **options),
    ):
        ratios.add(plain.seconds, ours.seconds)
    return {
        "plain_ms": 1e3 * statistics.median(ratios.plain),
        "ours_ms": 1e3 * statistics.median(ratios.ours),
        "ratio": ratios.median,
        **{name: ours.of_step(field) / 1e6 for name, field in TIMES.items()},
        **{name: ours.of_step(field) for name, field in (DECISIONS | CALLS).items()},
        HEAP: ours.of_step(HEAP) - plain.of_step(HEAP),
        "plain_calls": {name: plain.of_step(field) for name, field in CALLS.items()},
    }


def all_rows(given: Any) -> Iterator[dict[str, Any]]:
    device = torch.device("cuda:0")
    for name in given.nets:
        net = nets.net_named(name, given.tiny)
        torch.use_deterministic_algorithms(True, warn_only=not net.repeatable)
        torch.utils.deterministic.fill_uninitialized_memory = False
        peak = training.Job(net, device, 4, net.batch).peak_bytes()
        say(f"{name}: {peak / GIB:.2f} GiB")
        budgets = [(percent, {}) for percent in given.percents]
        with_tier = {"spill": training.spill_of(given.tiny)}
        for percent, options in [*budgets, *((percent, with_tier) for percent in given.with_tier)]:
            # An op on a list needs all of it at once: see tools/gpu_first_hour/checks/budgets.py.
            job = training.Job(
                net, device, given.warm + given.steps, net.batch, foreach=not options
            )
            row = {"net": name, "percent": percent, "tier": " + tier" if options else ""}
            try:
                yield row | figures_of(job, peak * percent // 100, given, **options)
            except recoup.OutOfBudgetError as error:
                say(f"{name} in {percent} %: {error}")
                yield row | dict.fromkeys(
                    ("plain_ms", "ours_ms", "ratio", *TIMES, *DECISIONS, *CALLS, HEAP)
                )


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--nets", nargs="+", default=list(NETS), choices=NETS, metavar="NET")
    parser.add_argument("--percents", nargs="*", type=int, default=[100, 70, 50, 35])
    parser.add_argument("--with-tier", nargs="*", type=int, default=[25], metavar="PERCENT")
    parser.add_argument("--warm", type=int, default=8, help="steps of the warm-up")
    parser.add_argument("--steps", type=int, default=10, help="steps after it")
    parser.add_argument("--rounds", type=int, default=5, help="pairs of a plain and a budgeted run")
    parser.add_argument("--planning", choices=["background", "wait", "off"], default="background")
    parser.add_argument("--tiny", action="store_true", help="nets of the rehearsal's size")
    add_json(parser)
    given = parser.parse_args()
    if not stand_in.is_host_only():
        parser.error("the second line of --help is the command to start it with")
    write_result(given.json, "host", print_markdown(COLUMNS, all_rows(given)))


if __name__ == "__main__":
    main()
