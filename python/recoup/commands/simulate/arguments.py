"""The arguments of `recoup simulate`, and what is wrong with them before anything is loaded."""

import argparse
import math
import os
from typing import Any

from recoup.commands.argument_types import (
    add_trace_argument,
    choice,
    file_to_write,
    or_none,
    real,
    size,
    whole,
    wrong,
)
from recoup.commands.simulate.checks import ANY_PEAK, check, parse_budgets


def add_simulate_command(commands: Any) -> None:
    """Adds the command to the parser's subparsers."""
    parser = commands.add_parser(
        "simulate",
        help="run a trace under policies and budgets, without its memory",
        usage="recoup simulate TRACE [options]",
        description="Runs the engine over a trace on a device with no memory. What is printed is "
        "the time ratio: all op costs, replays included, over those of the program alone.",
    )
    add_trace_argument(parser)
    parser.add_argument(
        "--preset",
        type=choice(["dtr"]),
        metavar="NAME",
        help="dtr: a log runs by the rules of the DTR authors' own simulator; its policies are "
        "those of their figures and of their ablation",
    )
    parser.add_argument(
        "--policy", nargs="+", metavar="NAME", help="or `all` (default: planned; of --preset: dtr)"
    )
    parser.add_argument(
        "--budgets",
        type=_budgets,
        default="100..10:10",
        metavar="LIST",
        help="percents of the unbudgeted peak: FROM..TO:STEP, or a list such as 80,50,30; a list "
        "may have sizes such as 2GiB too (default: 100..10:10)",
    )
    parser.add_argument(
        "--max-time-ratio",
        type=real("0 or more", 0),
        metavar="RATIO",
        help="a slower run ends there (default: 10; of --preset dtr: 2, as theirs)",
    )
    _add_engine(parser)
    _add_tier(parser)
    _add_search(parser)
    _add_files(parser)
    parser.set_defaults(command=_simulate, fail=parser.error, default=parser.get_default)


def _add_engine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cost-model",
        default="measured",
        type=choice(["measured", "bytes"]),
        metavar="NAME",
        help="what an op costs: measured, its time; bytes, its size (default: measured)",
    )
    parser.add_argument(
        "--replay-order",
        default="memory",
        type=choice(["memory", "recursive"]),
        metavar="NAME",
        help="memory keeps the peak of a replay low; recursive is DTR's (default: memory)",
    )
    parser.add_argument("--eager-drop", action="store_true", help="drop dead values at once: DTR's")
    parser.add_argument(
        "--no-layout", action="store_true", help="count bytes only: free memory is never in pieces"
    )
    parser.add_argument(
        "--oracle",
        type=real("a number from 0 to 8", 0, 8),
        nargs=4,
        default=[1.0, 1.0, 1.0, 1.0],
        metavar=("COST", "SIZE", "DISTANCE", "ANCESTORS"),
        help="of the policy oracle: three exponents and the weight of ancestors (default: 1 1 1 1)",
    )
    parser.add_argument(
        "--plan-ahead",
        action="store_true",
        default=None,
        help="schedules and lists are there from the first step on, as if it had run before",
    )
    parser.add_argument(
        "--noise",
        type=_noise,
        metavar="SEED:PERCENT",
        help="decide on costs that are measured as on a busy machine, off by so much; results "
        "count the true ones",
    )
    parser.add_argument(
        "--kinetic",
        action="store_true",
        help="consider all values, in policies that can by their kinetic order; none is sampled",
    )
    parser.add_argument(
        "--seed",
        type=whole(0, (1 << 64) - 1),
        default=1033096058,
        metavar="N",
        help="of random choices (default: 1033096058)",
    )


def _add_tier(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--spill",
        type=or_none(size),
        nargs="+",
        metavar="SIZE",
        help="with a spill tier of this size; of several there is a column each (none: "
        "without one)",
    )
    parser.add_argument(
        "--spill-bandwidth",
        type=_bandwidth,
        nargs="+",
        metavar="READ,WRITE",
        help="of that tier, in GB/s; of several there is a column each (default: 0.8,0.8)",
    )
    parser.add_argument(
        "--spill-latency",
        type=real("from 0 to 1e9 us", 0, 1e9),
        metavar="US",
        help="what each copy takes beside its bytes, in microseconds (default: 100)",
    )


def _add_search(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--optimum",
        action="store_true",
        help="search the least time ratio too; of a trace with several steps, all is of the last",
    )
    parser.add_argument(
        "--time-limit",
        type=real("above 0 s", 0, above=True),
        default=60.0,
        metavar="SECONDS",
        help="of the search at each budget (default: 60)",
    )
    parser.add_argument(
        "--jobs",
        type=whole(1),
        default=os.cpu_count() or 1,
        metavar="N",
        help="runs at once (default: one a core)",
    )


def _add_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json", type=file_to_write(), metavar="FILE", help="write all figures to this file"
    )
    parser.add_argument("--plot", type=file_to_write(), metavar="FILE", help="draw the time ratios")
    parser.add_argument(
        "--timeline",
        type=file_to_write(),
        metavar="FILE",
        help="of one policy and one budget: a Chrome trace, for Perfetto and chrome://tracing",
    )


# ---- types ----


def _budgets(text: str) -> str:
    try:
        parse_budgets(text, ANY_PEAK)
    except ValueError as error:
        raise wrong(f": {error}") from None
    return text


def _noise(text: str) -> tuple[int, float]:
    seed, colon, percent = text.partition(":")
    try:
        noise = int(seed), float(percent)
    except ValueError:
        colon = ""
    if not colon or not 0 <= noise[0] < 2**64 or not 0 <= noise[1] <= 200:
        raise wrong(f"must be SEED:PERCENT, such as 1:30, with at most 200 percent; got {text!r}")
    return noise


def _bandwidth(text: str) -> tuple[float, float]:
    try:
        read, write = map(float, text.split(","))
    except ValueError:
        read = write = 0.0
    if not (0 < read < math.inf and 0 < write < math.inf):
        raise wrong(f"must be READ,WRITE in GB/s, such as 3,1.5; got {text!r}")
    return read, write


def _simulate(options: argparse.Namespace) -> int:
    check(options)
    from recoup.commands.simulate.command import run

    return run(options)
