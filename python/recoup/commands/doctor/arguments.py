"""The arguments of `recoup doctor`."""

import argparse
from typing import Any

from recoup.commands.argument_types import directory


def add_doctor_command(commands: Any) -> None:
    """Adds `doctor` to the commands of the command line."""
    parser = commands.add_parser(
        "doctor",
        help="say what recoup finds here, and what is unsupported",
        usage="recoup doctor [--json] [--spill-dir DIR]",
        description="Says versions, memory and its limits, the disk for spilling, GPUs, and what "
        "is unsupported here. What cannot be found out is `unknown`, with the reason.",
    )
    parser.add_argument("--json", action="store_true", help="the same for programs")
    parser.add_argument(
        "--spill-dir",
        type=directory,
        metavar="DIR",
        help="the disk to look at (default: the one that a spill tier takes)",
    )
    parser.set_defaults(command=_run, fail=parser.error)


def _run(options: argparse.Namespace) -> int:
    from recoup.commands.doctor.command import run

    return run(options)
