"""Recordings and layouts for the cases."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import recoup
from message_cases import trace_files
from recoup.offline.layout import Buffer, Layout, Op


def recorded(function: Callable[[Any], Any]) -> recoup.Trace:
    """What `function` does with a run."""
    with recoup.trace("recorded.rtrace") as run:
        function(run)
    return recoup.Trace.read("recorded.rtrace")


def trace() -> recoup.Trace:
    """Three ops, each of which reads what the one before it made, and a step."""
    return recorded(lambda run: (torch.ones(1024).add(1).mul(2), run.mark_step()))


def two_steps() -> recoup.Trace:
    def function(run: Any) -> None:
        for _ in range(2):
            torch.ones(1024)
            run.mark_step()

    return recorded(function)


def draws() -> recoup.Trace:
    return recorded(lambda run: [torch.rand(8) for _ in range(2)])


def writes() -> recoup.Trace:
    """An op, what reads it, what writes it."""

    def function(run: Any) -> None:
        a = torch.ones(1024)
        a.add(1)
        a.mul_(2)

    return recorded(function)


def fills() -> recoup.Trace:
    def function(run: Any) -> None:
        a = torch.ones(1024)
        a.fill_(2)
        a.fill_(3)

    return recorded(function)


def asks() -> recoup.Trace:
    def function(run: Any) -> None:
        if torch.ones(()).item():
            torch.ones(1024)

    return recorded(function)


Tuples = list[tuple[Any, ...]]


def plan(buffers: Tuples, *, ops: Tuples | None = None, **options: Any) -> Layout:
    """A layout of buffers and ops that are given as tuples."""
    made = [Buffer(*each) for each in buffers]
    return recoup.layout.plan(made, ops=[Op(*each) for each in ops or []], **options)


def crowd() -> Tuples:
    """Buffers for which one try of the search finds no layout of the least size, 47."""
    choose = random.Random(4)
    buffers = []
    for i in range(20):
        lower = choose.randrange(12)
        upper = lower + 1 + choose.randrange(8)
        buffers.append((f"b{i}", lower, upper, choose.randrange(1, 12)))
    return buffers


def holes() -> Tuples:
    """Buffers that first fit puts in more than the 9 bytes that they need."""
    return [("a", 0, 4, 2), ("b", 6, 7, 5), ("c", 3, 7, 4), ("d", 3, 6, 2)]


_RECORDS = {
    "outside": trace_files.record(16, 1024),
    "an op": trace_files.op(operands=[trace_files.READ]),
    "an eviction": trace_files.record(25, 0),
    "a loss": trace_files.record(26, 1),
}


def trace_of(*names: str) -> recoup.Trace:
    """A recording of these records."""
    records = trace_files.NAME + trace_files.KERNEL + b"".join(_RECORDS[name] for name in names)
    Path("made.rtrace").write_bytes(trace_files.file(records))
    return recoup.Trace.read("made.rtrace")
