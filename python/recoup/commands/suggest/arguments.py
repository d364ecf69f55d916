"""The arguments of `recoup suggest`, and their checks before PyTorch is loaded."""

import argparse
from typing import Any

from recoup.commands.argument_types import (
    file_to_read,
    file_to_write,
    lengths,
    real,
    size,
    whole,
)
from recoup.commands.budget_arguments import add_option, add_rules, check_spill_options
from recoup.commands.programs import check_program

LEAST_STEPS = 2
_STEPS = 4
_BUDGET_RATIO, _BATCH_RATIO = 10.0, 2.0
_OF_A_RUN = (
    "program",
    "is_module",
    "steps",
    "whole_run",
    "time_plain",
    "keep_trace",
    "keep",
    "spill_only",
)
"""Options that need a program to run."""
_SHOWN = {
    "program": "the program",
    "is_module": "-m",
    "steps": "--steps",
    "whole_run": "--whole-run",
    "time_plain": "--time-plain",
    "keep_trace": "--keep-trace",
    "keep": "--keep",
    "spill_only": "--spill-only",
    "batch_size_for": "--batch-size-for SIZE",
    "batch": "--batch B",
    "lengths": "--lengths RECORDED:LONGEST",
}


def add_suggest_command(commands: Any) -> None:
    """Adds `suggest` to the commands of the command line."""
    parser = commands.add_parser(
        "suggest",
        help="record some steps of a program, and suggest a budget for it",
        allow_abbrev=False,
        usage="recoup suggest [options] (SCRIPT | -m MODULE) [args ...]\n"
        "       recoup suggest --trace FILE [options]",
        description="Runs the first steps of the program, simulates them in a series of budgets, "
        "and prints the predicted time of a step in each. With --batch-size-for: the largest "
        "batch for a budget.",
    )
    parser.add_argument(
        "--steps",
        type=whole(LEAST_STEPS),
        metavar="N",
        help="stop after N optimizer steps (default: 4: the first creates the optimizer's state, "
        "and a plan takes effect after two equal steps)",
    )
    parser.add_argument(
        "--whole-run",
        action="store_true",
        help="record the program to its end, including evaluation, checkpoints and ragged batches",
    )
    parser.add_argument(
        "--time-plain",
        action="store_true",
        help="also run the first steps without recoup, so that step times are relative to "
        "measured times",
    )
    add_option(
        parser, "policy", "NAME", help="the eviction policy, as in `recoup run`", default="planned"
    )
    add_option(parser, "spill", "SIZE", help="also predict with a spill tier of SIZE")
    parser.add_argument(
        "--max-time-ratio",
        type=real("above 1", 1, above=True),  # 1: no replay at all
        metavar="RATIO",
        help="reject slowdowns of a step above RATIO (default: 10; with --batch-size-for: 2)",
    )
    add_rules(parser)
    _add_batch(parser)
    _add_files(parser)
    parser.add_argument(
        "-m", dest="is_module", action="store_true", help="SCRIPT is the name of a module"
    )
    parser.add_argument(
        "program",
        nargs=argparse.REMAINDER,
        metavar="SCRIPT [args ...]",
        help="the Python program to run",
    )
    parser.set_defaults(command=_run, fail=parser.error, own_options=parser.option_names())


def _add_batch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--batch-size-for",
        type=size,
        metavar="SIZE",
        help="find the largest batch in the budget SIZE; needs --batch",
    )
    parser.add_argument(
        "--batch",
        type=whole(1),
        metavar="B",
        help="the current batch size of the program",
    )
    parser.add_argument(
        "--lengths",
        type=lengths,
        metavar="RECORDED:LONGEST",
        help="the length of the recorded inputs, and that of the longest input, which the batch "
        "must fit; needs --batch",
    )


def _add_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json", type=file_to_write(), metavar="FILE", help="write all results to FILE as JSON"
    )
    parser.add_argument(
        "--keep-trace", type=file_to_write(), metavar="FILE", help="keep the recorded trace in FILE"
    )
    parser.add_argument(
        "--trace",
        type=file_to_read,
        metavar="FILE",
        help="read the trace in FILE instead of running a program",
    )


def _run(options: argparse.Namespace) -> int:
    _check(options)
    from recoup.commands.suggest.command import run

    return run(options)


def _check(options: argparse.Namespace) -> None:
    """Rejects invalid combinations before the program runs; fills in defaults."""
    fail = options.fail
    if options.trace is not None:
        for name in _OF_A_RUN:
            if vars(options)[name]:
                fail(f"--trace runs no program: leave out {_SHOWN[name]}")
    elif not options.program:
        fail("the following arguments are required: SCRIPT, or --trace FILE")
    check_spill_options(options)
    needs = ("batch_size_for", "batch"), ("batch", "batch_size_for"), ("lengths", "batch")
    for one, other in needs:
        if vars(options)[one] is not None and vars(options)[other] is None:
            fail(f"{_SHOWN[one]} needs {_SHOWN[other]}")
    if options.batch is not None and options.time_plain:
        fail("--time-plain cannot be combined with --batch: leave out one")
    if options.whole_run and options.steps is not None:
        fail("--whole-run records all steps: leave out --steps")
    if options.steps is None:
        options.steps = _STEPS
    if options.max_time_ratio is None:
        options.max_time_ratio = _BUDGET_RATIO if options.batch is None else _BATCH_RATIO
    if options.trace is None and not options.is_module:
        check_program(options.program[0], fail)
