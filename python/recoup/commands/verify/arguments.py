"""The arguments of `recoup verify`, and their checks before PyTorch is loaded."""

import argparse
import dataclasses
import re
from collections.abc import Callable
from typing import Any, NoReturn

from recoup.commands.argument_types import file_to_read, file_to_write, whole
from recoup.commands.budget_arguments import check_spill_options, flag_of
from recoup.commands.parser import CommandParser
from recoup.commands.programs import check_program
from recoup.commands.run.arguments import add_budget_arguments

_SETTING = re.compile(r"[A-Za-z_]\w*=")


@dataclasses.dataclass
class Side:
    """One of the two runs."""

    settings: dict[str, Any]
    """The arguments of `recoup run` for its budget; the budget is None for a plain run."""
    environment: dict[str, str]
    """Environment variables to set."""
    script: str
    args: list[str]
    is_module: bool

    @property
    def words(self) -> list[str]:
        """The run as the user writes it."""
        budget = self.settings["budget"]
        return [
            *(f"{name}={value}" for name, value in self.environment.items()),
            *([] if budget is None else ["--budget", str(budget)]),
            *(["-m"] if self.is_module else []),
            self.script,
            *self.args,
        ]


def add_verify_command(commands: Any) -> None:
    """Adds `verify` to the commands of the command line."""
    parser: CommandParser = commands.add_parser(
        "verify",
        help="compare two runs of a training, bit for bit, after every step",
        allow_abbrev=False,
        usage="recoup verify [options] PROGRAM -- OTHER\n"
        "       recoup verify --record FILE [options] PROGRAM\n"
        "       recoup verify --against FILE [options] PROGRAM",
        description="PROGRAM and OTHER are [NAME=VALUE ...] [options of `recoup run`] (SCRIPT | -m "
        "MODULE) [args ...]. Without a script, OTHER runs that of PROGRAM with other options or "
        "environment variables. The runs take place one after the other. The exit code is 0 if "
        "every loss, gradient, parameter, buffer, optimizer state and random generator is equal "
        "after each step, and 82 if not. A run that differs is repeated, up to the first "
        "difference, to find the op that it comes from.",
    )
    parser.add_argument(
        "--steps",
        type=whole(1),
        metavar="N",
        help="compare the first N steps only (default: to the end of the programs)",
    )
    files = parser.add_mutually_exclusive_group()
    files.add_argument(
        "--record",
        type=file_to_write(),
        metavar="FILE",
        help="write the digests of PROGRAM's steps to FILE, and compare nothing",
    )
    files.add_argument(
        "--against",
        type=file_to_read,
        metavar="FILE",
        help="compare PROGRAM with the run that --record wrote to FILE",
    )
    add_budget_arguments(parser)
    parser.add_argument(
        "-m", dest="is_module", action="store_true", help="PROGRAM begins with the name of a module"
    )
    parser.add_argument(
        "words", nargs=argparse.REMAINDER, metavar="PROGRAM", help="the programs to compare"
    )
    parser.set_defaults(command=_run, fail=parser.error)


def _run(options: argparse.Namespace) -> int:
    options.sides = _sides(options)
    from recoup.commands.verify.command import run

    return run(options)


def _sides(options: argparse.Namespace) -> list[Side]:
    fail = options.fail
    words: list[str] = options.words
    cut = words.index("--") if "--" in words else len(words)
    if cut == 0:
        fail("the following arguments are required: PROGRAM")
    common = {name: getattr(options, name) for name in vars(_budget_parser().parse_args([]))}
    first = [*(["-m"] if options.is_module else []), *words[:cut]]
    sides = [_side(first, common, None, fail)]
    if cut < len(words):
        if options.record is not None or options.against is not None:
            fail("--record and --against take one program: leave out what follows --")
        sides.append(_side(words[cut + 1 :], common, sides[0], fail))
        if sides[0] == sides[1]:
            fail(
                "both sides are the same run; to verify that a program repeats, add a word of "
                "the environment such as RUN=2 after --"
            )
    elif options.record is None and options.against is None:
        fail("there is nothing to compare with: add -- and the other program, or --against FILE")
    if all(side.settings["budget"] is None for side in sides):
        _refuse_without_budget(common, fail)
    return sides


def _side(
    words: list[str],
    common: dict[str, Any],
    first: Side | None,
    fail: Callable[[str], NoReturn],
) -> Side:
    environment = {}
    while words and _SETTING.match(words[0]):
        name, _, value = words[0].partition("=")
        environment[name] = value
        words = words[1:]
    parser = _budget_parser()
    parser.add_argument("-m", dest="is_module", action="store_true")
    parser.add_argument("script", nargs="?")
    parser.add_argument("args", nargs=argparse.REMAINDER)
    given = vars(parser.parse_args(words))
    script, args, is_module = (given.pop(name) for name in ("script", "args", "is_module"))
    if script is None:
        if first is None:
            fail("the following arguments are required: PROGRAM")
        script, args, is_module = first.script, first.args, first.is_module
        common, environment = first.settings, first.environment | environment
    elif not is_module:
        check_program(script, fail)
    settings = {name: common[name] if value is None else value for name, value in given.items()} | {
        "option": [*common["option"], *given["option"]]
    }
    check_spill_options(argparse.Namespace(**settings, fail=fail))
    if settings["budget"] is None:
        _refuse_without_budget(given, fail)
    return Side(settings, environment, script, args, is_module)


def _refuse_without_budget(settings: dict[str, Any], fail: Callable[[str], NoReturn]) -> None:
    for name, value in settings.items():
        if value not in (None, []):
            fail(f"{flag_of(name)} needs a budget: add --budget SIZE")


def _budget_parser() -> CommandParser:
    parser = CommandParser(
        prog="recoup verify",
        usage="[NAME=VALUE ...] [options] SCRIPT [args ...]",
        add_help=False,
        allow_abbrev=False,
    )
    add_budget_arguments(parser)
    return parser
