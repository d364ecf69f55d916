"""The steps of a trace, and traces with other ends, sizes or costs that are made of it."""

import itertools
from collections.abc import Sequence

from recoup.offline.traces import Trace, TracedOp

Kernel = tuple[int, ...]
"""What a kernel does: the bytes of an allocation, or ~n for the free of its allocation n."""


class Steps:
    """The events and ops of a trace, and the marks that end its steps."""

    def __init__(self, trace: Trace) -> None:
        self.events = trace._trace.events()
        """(kind, index, bytes) each: `TraceEvent` of include/recoup/trace.h has the kinds."""
        self.ops = trace.ops()
        self.ends = [place for place, (kind, _, _) in enumerate(self.events) if kind == "step"]
        """Places of the marks. A place is the index of an event, or the number of events."""
        are_ops = (kind == "op" for kind, _, _ in self.events)
        self.ops_before = list(itertools.accumulate(are_ops, initial=0))
        """Number of ops before each place."""
        starts = [0, *self.ends]
        self.complete = [self.ops_between(*each) for each in itertools.pairwise(starts)]
        """The ops of each complete step."""

    def ops_between(self, start: int, end: int) -> list[TracedOp]:
        """The ops from place `start` to place `end`."""
        return self.ops[self.ops_before[start] : self.ops_before[end]]

    def times_ns(self) -> list[int | None]:
        """Clock time of each complete step, in nanoseconds; None if the trace does not have it."""
        times: list[int | None] = []
        took: int | None = None
        for kind, index, _ in self.events:
            if kind == "time":
                took = index * 1000
            elif kind == "step":
                times.append(took)
                took = None
        return times


def first_events(trace: Trace, count: int) -> Trace:
    """The trace up to that event, without plans, which belong to a run in one budget."""
    return Trace(trace._trace.first_events(count))


def first_steps(trace: Trace, count: int) -> Trace:
    """The trace up to the mark of step `count`, counted from 1, without plans."""
    return first_events(trace, Steps(trace).ends[count - 1] + 1)


def numbers_of(trace: Trace) -> dict[str, list[int]]:
    """Numbers of its ops, operands, new storages, parts of ops on lists and events, in order."""
    return trace._trace.numbers()


def kernels_of(trace: Trace) -> list[Kernel]:
    """Its kernels; "op_kernels" of `numbers_of` has the index of each op's."""
    return list(map(tuple, trace._trace.kernels()))


def changed(
    trace: Trace, kernels: Sequence[Kernel] | None = None, **numbers: Sequence[int]
) -> Trace:
    """The trace with other kernels and other `numbers_of`, without plans.

    Raises ValueError if an engine could not have recorded it.
    """
    if kernels is None:
        kernels = kernels_of(trace)
    return Trace(trace._trace.with_numbers(numbers, kernels))
