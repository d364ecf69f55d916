"""The arguments of `recoup doctor`."""

import argparse
from typing import Any

from recoup.commands.argument_types import directory


def add_doctor_command(commands: Any) -> None:
    """Adds `doctor` to the commands of the command line."""
    parser = commands.add_parser(
        "doctor",
        help="show what recoup finds on this machine, and what is unsupported",
        usage="recoup doctor [--json] [--spill-dir DIR]",
        description="Shows versions, memory and its limits, the disk for spilling, GPUs, and "
        "features that are unsupported here. A fact that cannot be determined is `unknown`, with "
        "the reason.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--spill-dir",
        type=directory,
        metavar="DIR",
        help="a directory on the disk to test (default: the directory that a spill tier uses)",
    )
    parser.set_defaults(command=_run, fail=parser.error)


def _run(options: argparse.Namespace) -> int:
    from recoup.commands.doctor.command import run

    return run(options)
