"""The checks of the first hour, with their parts, order and time limits."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

PART_SECONDS = {1: 7 * 60, 2: 9 * 60, 3: 9 * 60, 4: 9 * 60, 5: 5 * 60}
"""Time limits of the parts. Those of checks only end checks that hang: their sum is larger."""
TOTAL_SECONDS = sum(PART_SECONDS.values())
LEAST_SECONDS = 10
"""A check does not start with less time left."""

NETS = ("gpt2", "resnet50")
LARGE_NETS = ("llama", "diffusion")
"""Nets whose steps take longer on the GPU than on the host."""
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
        yield from _in_budgets(net, 2, 75, pairs=5)


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


def _fourth_part() -> Iterator[Check]:
    for net in LARGE_NETS:
        # Their times vary less than those of nets that wait for the host.
        yield from _in_budgets(net, 4, 120, pairs=3)


def _fifth_part() -> Iterator[Check]:
    yield Check(
        "replays",
        5,
        "replays.py",
        75,
        "The host's time of a replay with an empty launch queue and with a full one, by library.",
    )
    yield Check(
        "two processes",
        5,
        "processes.py",
        90,
        "Two trainings at the same time, each in its own process and budget; bits compared.",
        {"nets": NETS, "percent": 70},
    )
    for net in NETS:
        about = f"A step of {net} with CUDA graphs and without, plain and in 50 %."
        yield Check(f"graphs of {net}", 5, "graphs.py", 90, about, {"net": net, "percent": 50})
    yield Check(
        "500 steps of gpt2",
        5,
        "long.py",
        150,
        "Losses, parameters, gradients and the optimizer's state after 500 steps; bits compared.",
        {"net": "gpt2", "percent": 50, "steps": 500},
    )


def _in_budgets(net: str, part: int, seconds: int, pairs: int) -> Iterator[Check]:
    about = f"Time of a step of {net} in budgets, over a plain one; bits compared."
    for percent in (*PERCENTS, PERCENT_WITH_TIER):
        with_tier = percent == PERCENT_WITH_TIER
        yield Check(
            f"{net} in {percent} %" + (" with pinned memory" if with_tier else ""),
            part,
            "budgets.py",
            seconds,
            about,
            {"net": net, "percent": percent, "spill": with_tier, "pairs": pairs},
            table=f"{net} in budgets",
        )


def _alternative(net: str, way: str, seconds: int) -> Check:
    about = f"{net} by {way}, compared with plain, and recoup in the memory that this takes."
    settings = {"net": net, "way": way}
    return Check(f"{net}, {way}", 3, "alternatives.py", seconds, about, settings)


def _largest_batch(net: str, way: str) -> Check:
    about = f"The largest batch of {net} that trains in the memory of the GPU."
    settings = {"net": net, "way": way}
    return Check(f"largest batch of {net}, {way}", 3, "batches.py", 60, about, settings)


CHECKS = (
    *_first_part(),
    *_second_part(),
    *_third_part(),
    *_fourth_part(),
    *_fifth_part(),
)
