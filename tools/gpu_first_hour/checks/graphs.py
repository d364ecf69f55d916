"""A step of a net with CUDA graphs and without, plain and in a budget.

With graphs the whole step is captured once, with backward and optimizer, and then replayed. If a
step cannot be captured, the reason is a result and no failure.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from nets import net_named
from rows import report, settings, skip
from torch import Tensor
from training import PAIRS, Job, Step, Trained, comparison

import gpu
import recoup
from recoup.bench.harness.turns import Ratios, pairs

STEPS = 16
WARM = 4
"""Number of steps before the one that is captured."""


class Captured:
    """Runs the first steps as they are, captures the next one, and replays it from then on."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._before = WARM
        self._graph: torch.cuda.CUDAGraph | None = None
        self._loss: Tensor | None = None

    def __call__(self) -> Tensor:
        """Runs a step. Raises RuntimeError if it cannot be captured."""
        if self._before > 0:
            self._before -= 1
            return self._on_another_stream()
        if self._graph is None:
            graph = torch.cuda.CUDAGraph()
            # PyTorch keeps the stream of a capture that failed to begin as the current stream.
            with torch.cuda.stream(torch.cuda.current_stream()), torch.cuda.graph(graph):
                self._loss = self._step()
            self._graph = graph
        self._graph.replay()
        assert self._loss is not None
        return self._loss

    def _on_another_stream(self) -> Tensor:
        """A capture must find what a step leaves on a stream other than the default one."""
        other, current = torch.Stream(device="cuda"), torch.cuda.current_stream()
        other.wait_stream(current)
        with other:
            loss = self._step()
        current.wait_stream(other)
        return loss


def figures(job: Job, other: Callable[[], Trained], twin: Job) -> Iterator[dict[str, Any]]:
    """The figures of another training over a plain one without graphs, after each pair.

    twin: its plain training must have the bits of the other.
    """
    ratios, others = Ratios(), set()
    plain = {twin.plainly().digest for _ in range(2)}
    for base, its in pairs(PAIRS, job.plainly, lambda _: other()):
        ratios.add(base.seconds, its.seconds)
        others.add(its.digest)
        yield {"bits": comparison(plain == others, len(plain) == 1), **ratios.figures()}


def main() -> int:
    given = settings()
    device, tiny = gpu.open_device(given["device"]), given["rehearsal"]
    if not gpu.is_real(device):
        skip("the test device has no CUDA graphs")
    net = net_named(given["net"], tiny)
    gpu.make_repeatable(net.repeatable)
    job = Job(net, device, STEPS, net.batch)
    # Its optimizer has other bits than the usual one.
    capturable = replace(job, capturable=True)
    with_graphs = replace(capturable, around=Captured)
    budget = job.peak_bytes() * given["percent"] // 100
    recoup_row = f"recoup in {given['percent']} %"
    rows: dict[str, tuple[Callable[[], Trained], Job]] = {
        recoup_row: (lambda: job.in_budget(budget)[0], job),
        "plain, CUDA graphs": (with_graphs.plainly, capturable),
        f"{recoup_row}, CUDA graphs": (lambda: with_graphs.in_budget(budget)[0], capturable),
    }
    failed = []
    for name, (train, twin) in rows.items():
        try:
            for found in figures(job, train, twin):
                report(name, **found)
        except recoup.OutOfBudgetError:
            report(name, result="out of budget")
        except RuntimeError as error:
            report(name, result="refused", reason=str(error).splitlines()[0])
        else:
            # A graph may select other kernels than PyTorch's usual run.
            if found["bits"] == "differ" and name.startswith(recoup_row):
                failed.append(name)
    if failed:
        print(f"bits differ from those of a plain training: {', '.join(failed)}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
