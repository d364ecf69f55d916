"""The arguments of `recoup layout`, and their checks before PyTorch is loaded."""

import argparse
import importlib.util
from typing import Any

from recoup._memory.sizes import parse_bytes
from recoup.commands.argument_types import (
    choice,
    file_to_read,
    file_to_write,
    real,
    size,
    wrong,
)
from recoup.known_names import layout_planners

ALL = "all"


def add_layout_command(commands: Any) -> None:
    """Adds `layout` to the commands of the command line."""
    planners = list(layout_planners())
    parser = commands.add_parser(
        "layout",
        usage="recoup layout FILE [options]",
    )
    parser.add_argument(
        "file",
        type=file_to_read,
        metavar="FILE",
        help="a .csv file with the header id,lower,upper,size, a trace, or a log of the DTR "
        "authors",
    )
    parser.add_argument(
        "--planner",
        default="search",
        type=choice([*planners, ALL]),
        metavar="NAME",
        help=f"{', '.join(planners)}, or all: one row per planner (default: search)",
    )
    parser.add_argument(
        "--capacity",
        type=size,
        metavar="BYTES",
        help="the size that the layout must fit in: bytes, or a size such as 4GiB",
    )
    parser.add_argument(
        "--alignment",
        type=_alignment,
        default="1",
        metavar="N",
        help="alignment of all addresses, a power of two (default: 1)",
    )
    parser.add_argument(
        "--time-limit",
        type=real("a number of seconds, 0 or more", 0),
        default=10.0,
        metavar="S",
        help="time limit of the planner search, in seconds (default: 10)",
    )
    parser.add_argument(
        "--no-in-place",
        action="store_true",
        help="for traces: let no op write its output over an input that is dead after it",
    )
    parser.add_argument(
        "--disable-inplace-ops",
        nargs="+",
        default=[],
        metavar="NAME",
        help="for traces: the same for the named ops only, such as relu or aten::add.Tensor",
    )
    parser.add_argument("--dump", action="store_true", help="print the address of each tensor")
    parser.add_argument(
        "--plot",
        type=file_to_write(".png"),
        metavar="FILE.png",
        help="draw addresses over time to FILE.png",
    )
    parser.add_argument(
        "--json", type=file_to_write(), metavar="FILE", help="write the layout to FILE as JSON"
    )
    parser.set_defaults(command=_run, fail=parser.error)


def _alignment(text: str) -> str:
    """A power of two. Stays text."""
    count = parse_bytes(size(text), name="")
    if count & (count - 1):
        raise wrong(f"must be a power of two; got {text!r}")
    return text


def _run(options: argparse.Namespace) -> int:
    _check_together(options)
    from recoup.commands.offline.layout_command import run

    return run(options)


def _check_together(options: argparse.Namespace) -> None:
    wants_addresses = options.dump or options.plot is not None
    if wants_addresses and options.planner != ALL and not layout_planners()[options.planner]:
        options.fail(
            f"--dump and --plot need addresses, but the planner {options.planner} computes none"
        )
    if options.no_in_place and options.disable_inplace_ops:
        options.fail("--no-in-place and --disable-inplace-ops cannot be combined: leave out one")
    if options.disable_inplace_ops and options.file.endswith(".csv"):
        options.fail("--disable-inplace-ops needs a trace: a .csv file has no ops")
    if options.json is not None and options.planner == ALL:
        options.fail("--json needs one planner: add --planner NAME")
    if options.plot is not None and importlib.util.find_spec("matplotlib") is None:
        options.fail("--plot needs matplotlib: pip install matplotlib")
