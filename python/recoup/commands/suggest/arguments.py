"""The arguments of `recoup suggest`, and what is wrong with them before anything is loaded."""

import argparse
from typing import Any

from recoup.commands.argument_types import (
    file_to_read,
    file_to_write,
    policy,
    real,
    size,
    whole,
)
from recoup.commands.programs import check_program

LEAST_STEPS = 2
_STEPS = 4
_BUDGET_RATIO, _BATCH_RATIO = 10.0, 2.0
_SHOWN = {
    "program": "a program",
    "is_module": "-m",
    "steps": "--steps",
    "whole_run": "--whole-run",
    "time_plain": "--time-plain",
    "keep_trace": "--keep-trace",
    "batch_size_for": "--batch-size-for SIZE",
    "batch": "--batch B",
}


def add_suggest_command(commands: Any) -> None:
    """Adds the command to the parser's subparsers."""
    parser = commands.add_parser(
        "suggest",
        help="record some steps of a program, and say which budget to run it in",
        allow_abbrev=False,
        usage="recoup suggest [options] (SCRIPT | -m MODULE) [args ...]\n"
        "       recoup suggest --trace FILE [options]",
        description="Runs the program until some steps have ended, simulates what it did in a "
        "ladder of budgets, and prints what each would cost. Or: how large its batch may be.",
    )
    parser.add_argument(
        "--steps",
        type=whole(LEAST_STEPS),
        metavar="N",
        help="end the program after N steps of its optimizer (default: 4: the first makes the "
        "optimizer's state, the second and the third are alike, and so the fourth has a plan)",
    )
    parser.add_argument(
        "--whole-run",
        action="store_true",
        help="record all that the program does, to its end: evaluation, checkpoints and ragged "
        "batches count too",
    )
    parser.add_argument(
        "--time-plain",
        action="store_true",
        help="run the first steps once more, without recoup, so that step times are relative to "
        "measured ones",
    )
    parser.add_argument(
        "--policy",
        type=policy(),
        default="planned",
        metavar="NAME",
        help="what to evict, as of `recoup run` (default: planned)",
    )
    parser.add_argument(
        "--spill",
        type=size,
        metavar="SIZE",
        help="with a spill tier of this size, beside none",
    )
    parser.add_argument(
        "--max-time-ratio",
        type=real("above 1", 1, above=True),  # 1 is that of no replay at all
        metavar="RATIO",
        help="a budget in which a step takes more than RATIO times as long does not count "
        "(default: 10; of a batch size: 2)",
    )
    _add_batch(parser)
    _add_files(parser)
    parser.add_argument(
        "-m", dest="is_module", action="store_true", help="SCRIPT is the name of a module"
    )
    parser.add_argument(
        "program", nargs=argparse.REMAINDER, metavar="SCRIPT [args ...]", help="a Python program"
    )
    parser.set_defaults(command=_run, fail=parser.error, own_options=parser.option_names())


def _add_batch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--batch-size-for",
        type=size,
        metavar="SIZE",
        help="how large the batch may be in this budget",
    )
    parser.add_argument(
        "--batch",
        type=whole(1),
        metavar="B",
        help="the batch size that the program runs with now",
    )


def _add_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json", type=file_to_write(), metavar="FILE", help="write all figures to this file"
    )
    parser.add_argument(
        "--keep-trace", type=file_to_write(), metavar="FILE", help="keep what was recorded"
    )
    parser.add_argument(
        "--trace", type=file_to_read, metavar="FILE", help="run nothing: take this recording"
    )


def _run(options: argparse.Namespace) -> int:
    _check(options)
    from recoup.commands.suggest.command import run

    return run(options)


def _check(options: argparse.Namespace) -> None:
    """Refuses, before the program runs, what could not be done after it; fills in defaults."""
    fail = options.fail
    if options.trace is not None:
        for name in ("program", "is_module", "steps", "whole_run", "time_plain", "keep_trace"):
            if vars(options)[name]:
                fail(f"--trace runs nothing: it goes without {_SHOWN[name]}")
    elif not options.program:
        fail("the following arguments are required: SCRIPT, or --trace FILE")
    for one, other in (("batch_size_for", "batch"), ("batch", "batch_size_for")):
        if vars(options)[one] is not None and vars(options)[other] is None:
            fail(f"{_SHOWN[one]} goes with {_SHOWN[other]}")
    if options.batch is not None and options.time_plain:
        fail("--time-plain is for budgets: it goes without --batch")
    if options.whole_run and options.steps is not None:
        fail("--whole-run records all steps: it goes without --steps")
    if options.steps is None:
        options.steps = _STEPS
    if options.max_time_ratio is None:
        options.max_time_ratio = _BUDGET_RATIO if options.batch is None else _BATCH_RATIO
    if options.trace is None and not options.is_module:
        check_program(options.program[0], fail)
