"""The checks of the first hour, with their parts, order and time limits."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

TOTAL_SECONDS = 25 * 60
PART_SECONDS = {1: 7 * 60, 2: 9 * 60, 3: 9 * 60}
LEAST_SECONDS = 10
"""A check does not start with less time left."""

NETS = ("gpt2", "resnet50")
PERCENTS = (100, 70, 50, 35)
"""Budgets, in percent of the memory of a plain training."""
PERCENT_WITH_TIER = 25


@dataclass(frozen=True)
class Check:
    """A program that measures or tests one thing, in a process of its own."""

    name: str
    part: int
    program: str
    """File name in the folder `checks`."""
    seconds: int
    """Time limit in seconds."""
    about: str
    """The property that it shows, in one sentence."""
    settings: dict[str, Any] = field(default_factory=dict)
    needs_gpu: bool = True
    table: str = ""
    """Title of the table on the page; checks with the same title share it."""

    def arguments(self, device: str, rehearsal: bool, seconds: float) -> str:
        """The program's arguments, as JSON."""
        given = {"device": device, "rehearsal": rehearsal, "seconds": seconds}
        return json.dumps({**given, **self.settings})


BUILD = Check(
    "build",
    1,
    "build.py",
    400,
    "recoup is compiled for this PyTorch, on all cores.",
    needs_gpu=False,
)


def _first_part() -> Iterator[Check]:
    yield BUILD
    yield Check("smallest", 1, "smallest.py", 90, "A small training in a budget ends and is right.")
    yield Check(
        "correctness",
        1,
        "correctness.py",
        300,
        "The checks of tests/python/gpu/test_gpu.py, each in a process of its own.",
    )
    yield Check(
        "programs",
        1,
        "programs.py",
        180,
        "Trainings as users write them, in 85, 70, 55 and 40 % of what they take; bits compared.",
    )


def _second_part() -> Iterator[Check]:
    yield Check(
        "sanitizer",
        2,
        "sanitizer.py",
        90,
        "compute-sanitizer watches the memory accesses of the small training.",
    )
    yield Check(
        "watching",
        2,
        "watching.py",
        75,
        "What it costs to be watched when nothing is evicted: ops of three sizes, and a step.",
    )
    for net in NETS:
        for percent in PERCENTS:
            yield Check(
                f"{net} in {percent} %",
                2,
                "budgets.py",
                75,
                f"Time of a step of {net} in budgets, over a plain one; bits compared.",
                {"net": net, "percent": percent},
                table=f"{net} in budgets",
            )
        yield Check(
            f"{net} in {PERCENT_WITH_TIER} % with pinned memory",
            2,
            "budgets.py",
            75,
            f"The same of {net} with a spill tier in pinned memory of the host.",
            {"net": net, "percent": PERCENT_WITH_TIER, "spill": True},
            table=f"{net} in budgets",
        )


def _third_part() -> Iterator[Check]:
    yield Check(
        "copies",
        3,
        "copies.py",
        75,
        "Bandwidth of copies to pinned memory, and how much of a training's copies is hidden.",
    )
    for net in NETS:
        yield _alternative(net, "checkpoint", 75)
        yield from (_largest_batch(net, way) for way in ("plain", "recoup"))
    for net in NETS:
        about = f"Kernels, copies and calls of the runtime in a step of {net}, plain and in 50 %."
        yield Check(f"profile of {net}", 3, "profiles.py", 60, about, {"net": net, "percent": 50})
    # Last, because compilation takes the most time.
    yield from (_alternative(net, "compiled 0.5", 150) for net in NETS)


def _alternative(net: str, way: str, seconds: int) -> Check:
    about = f"{net} by {way}, compared with plain, and recoup in the memory that this takes."
    settings = {"net": net, "way": way}
    return Check(f"{net}, {way}", 3, "alternatives.py", seconds, about, settings)


def _largest_batch(net: str, way: str) -> Check:
    about = f"The largest batch of {net} that trains in the memory of the GPU."
    settings = {"net": net, "way": way}
    return Check(f"largest batch of {net}, {way}", 3, "batches.py", 60, about, settings)


CHECKS = (*_first_part(), *_second_part(), *_third_part())
