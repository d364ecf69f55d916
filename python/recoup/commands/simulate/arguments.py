"""The arguments of `recoup simulate`, and their checks before PyTorch is loaded."""

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
from recoup.commands.budget_arguments import add_option, add_tuning
from recoup.commands.simulate.checks import ANY_PEAK, check, parse_budgets
from recoup.known_names import option_table


def add_simulate_command(commands: Any) -> None:
    """Adds `simulate` to the commands of the command line."""
    parser = commands.add_parser(
        "simulate",
        help="simulate a trace under policies and budgets, without allocating its memory",
        usage="recoup simulate TRACE [options]",
        description="Runs the engine over a trace on a device without memory and prints time "
        "ratios: the cost of all ops, replays included, divided by the cost of the program's ops.",
    )
    add_trace_argument(parser)
    parser.add_argument(
        "--preset",
        type=choice(["dtr"]),
        metavar="NAME",
        help="dtr: run a log by the rules of the DTR authors' simulator, with the policies of "
        "their figures and of their ablation",
    )
    parser.add_argument(
        "--policy",
        nargs="+",
        metavar="NAME",
        help="policies, or `all` (default: planned; with --preset dtr: dtr)",
    )
    parser.add_argument(
        "--budgets",
        type=_budgets,
        default="100..10:10",
        metavar="LIST",
        help="percentages of the unbudgeted peak: FROM..TO:STEP, or a list such as 80,50,30; a "
        "list may also contain sizes such as 2GiB (default: 100..10:10)",
    )
    parser.add_argument(
        "--max-time-ratio",
        type=real("0 or more", 0),
        metavar="RATIO",
        help="abort a simulation whose time ratio exceeds RATIO (default: 10; with --preset dtr: "
        "2, as in the authors' simulator)",
    )
    _add_engine(parser)
    _add_tier(parser)
    _add_search(parser)
    _add_files(parser)
    parser.set_defaults(command=_simulate, fail=parser.error, default=parser.get_default)


def _add_engine(parser: argparse.ArgumentParser) -> None:
    add_tuning(parser)
    parser.add_argument(
        "--no-layout",
        action="store_true",
        help="count bytes only, without addresses: no fragmentation",
    )
    add_option(
        parser,
        "oracle",
        ("COST", "SIZE", "DISTANCE", "ANCESTORS"),
        help="parameters of the policy oracle: three exponents and the weight of ancestors",
        nargs=4,
        default=option_table()["oracle"].default,
    )
    parser.add_argument(
        "--plan-ahead",
        action="store_true",
        default=None,
        help="use schedules and lists of evictions from the first step on, as if the step had "
        "run before",
    )
    parser.add_argument(
        "--noise",
        type=_noise,
        metavar="SEED:PERCENT",
        help="let policies see costs with random errors (standard deviation PERCENT), as on a "
        "busy machine; results use the true costs",
    )


def _add_tier(parser: argparse.ArgumentParser) -> None:
    add_option(
        parser,
        "spill",
        "SIZE",
        help="simulate with a spill tier of SIZE, or `none`; one column for each size",
        type=or_none(size),
        nargs="+",
    )
    parser.add_argument(
        "--spill-bandwidth",
        type=_bandwidth,
        nargs="+",
        metavar="READ,WRITE",
        help="bandwidth of the spill tier in GB/s; one column for each (default: 0.8,0.8)",
    )
    add_option(
        parser,
        "spill_request_ns",
        "NS",
        help="fixed time of each copy in nanoseconds (default: 100,000)",
    )


def _add_search(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--optimum",
        action="store_true",
        help="also search for the least possible time ratio; of a trace with several steps, use "
        "only the last step",
    )
    parser.add_argument(
        "--time-limit",
        type=real("above 0 s", 0, above=True),
        default=60.0,
        metavar="SECONDS",
        help="time limit of the search for each budget (default: 60)",
    )
    parser.add_argument(
        "--jobs",
        type=whole(1),
        default=os.cpu_count() or 1,
        metavar="N",
        help="number of simulations at once (default: one per core)",
    )


def _add_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json", type=file_to_write(), metavar="FILE", help="write all results to FILE as JSON"
    )
    parser.add_argument(
        "--plot", type=file_to_write(), metavar="FILE", help="draw the time ratios to FILE"
    )
    parser.add_argument(
        "--timeline",
        type=file_to_write(),
        metavar="FILE",
        help="write a timeline of one policy in one budget to FILE, for Perfetto and "
        "chrome://tracing",
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
        raise wrong(f"must be SEED:PERCENT, such as 1:30, with PERCENT at most 200; got {text!r}")
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
