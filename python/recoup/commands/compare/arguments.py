"""The arguments of `recoup compare`."""

import argparse
from typing import Any

from recoup.commands.argument_types import file_to_read, whole
from recoup.commands.parser import CommandParser


def add_compare_command(commands: Any) -> None:
    """Adds `compare` to the commands of the command line."""
    parser: CommandParser = commands.add_parser(
        "compare",
        help="compare two reports of recoup run: time, memory, replays, copies, modules",
        usage="recoup compare A.json B.json [--modules N]",
        description="A and B are files of `recoup run --report FILE.json`: of two budgets, two "
        "commits, or of a budget and of a run with ample memory.",
    )
    parser.add_argument("first", type=file_to_read, metavar="A", help="the report to compare with")
    parser.add_argument("second", type=file_to_read, metavar="B", help="the other report")
    parser.add_argument(
        "--modules",
        type=whole(0),
        default=10,
        metavar="N",
        help="show the N modules whose time or memory differs most (default: 10)",
    )
    parser.set_defaults(command=_run, fail=parser.error)


def _run(options: argparse.Namespace) -> int:
    from recoup.commands.compare.command import run

    return run(options)
