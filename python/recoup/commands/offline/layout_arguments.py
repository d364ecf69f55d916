"""The arguments of `recoup layout`, and what is wrong with them before anything is loaded."""

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
        "layout", help="plan addresses for known lifetimes", usage="recoup layout FILE [options]"
    )
    parser.add_argument(
        "file",
        type=file_to_read,
        metavar="FILE",
        help="a .csv of id,lower,upper,size with that header, a trace, or a log of the DTR authors",
    )
    parser.add_argument(
        "--planner",
        default="search",
        type=choice([*planners, ALL]),
        metavar="NAME",
        help=f"{', '.join(planners)}, or all: one row each (default: search)",
    )
    parser.add_argument(
        "--capacity", type=size, metavar="BYTES", help="what it must fit in; 4GiB works too"
    )
    parser.add_argument(
        "--alignment",
        type=_alignment,
        default="1",
        metavar="N",
        help="of all addresses, a power of two (default: 1)",
    )
    parser.add_argument(
        "--time-limit",
        type=real("a number of seconds, 0 or more", 0),
        default=10.0,
        metavar="S",
        help="for search (default: 10)",
    )
    parser.add_argument(
        "--no-in-place",
        action="store_true",
        help="of a trace: no op writes its output over an input that dies there",
    )
    parser.add_argument(
        "--disable-inplace-ops",
        nargs="+",
        default=[],
        metavar="NAME",
        help="of a trace: ops that do not, such as relu or aten::add.Tensor",
    )
    parser.add_argument("--dump", action="store_true", help="print where each tensor lies")
    parser.add_argument(
        "--plot", type=file_to_write(".png"), metavar="FILE.png", help="draw addresses over time"
    )
    parser.add_argument(
        "--json", type=file_to_write(), metavar="FILE", help="write the layout to this file"
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
        options.fail(f"--dump and --plot need addresses, and {options.planner} gives none")
    if options.no_in_place and options.disable_inplace_ops:
        options.fail("--no-in-place and --disable-inplace-ops exclude each other: leave out one")
    if options.disable_inplace_ops and options.file.endswith(".csv"):
        options.fail("--disable-inplace-ops needs a trace: a .csv has no ops")
    if options.json is not None and options.planner == ALL:
        options.fail("--json needs one planner, not all")
    if options.plot is not None and importlib.util.find_spec("matplotlib") is None:
        options.fail("--plot needs matplotlib: pip install matplotlib")
