"""The command line: the parser of `recoup` and of its commands.

Note [Arguments first]: this module and those of the arguments of each command load neither PyTorch
nor the core, which take seconds to load. A command loads them after it has checked its arguments.
"""

import argparse
import contextlib
import io
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import recoup
from recoup.commands.bench.arguments import add_bench_command
from recoup.commands.compare.arguments import add_compare_command
from recoup.commands.doctor.arguments import add_doctor_command
from recoup.commands.exit_codes import INTERRUPTED
from recoup.commands.glossary_command import add_glossary_command
from recoup.commands.interrupts import plain_interrupts
from recoup.commands.offline.layout_arguments import add_layout_command
from recoup.commands.offline.order_arguments import add_order_command
from recoup.commands.parser import CommandParser
from recoup.commands.policies_command import add_policies_command
from recoup.commands.run.arguments import add_run_command
from recoup.commands.simulate.arguments import add_simulate_command
from recoup.commands.suggest.arguments import add_suggest_command
from recoup.commands.verify.arguments import add_verify_command
from recoup.hints import did_you_mean


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command in `argv` (default: the arguments of the process).

    Returns the exit code. Exceptions of the user's program pass through, SystemExit and
    KeyboardInterrupt included, so that Python ends as it would without recoup.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    parser, commands = make_parser()
    _check_first(words, parser, commands)
    options = parser.parse_args(words)
    if words[0] != "run" and isinstance(sys.stdout, io.TextIOWrapper):
        # Names of files may have bytes that are no text.
        sys.stdout.reconfigure(errors="backslashreplace")
    code: int
    if words[0] == "run":
        code = options.command(options)
        return code
    try:
        with plain_interrupts():
            code = options.command(options)
    except KeyboardInterrupt:
        _end_interrupted(words[0])
    return code


def make_parser() -> tuple[CommandParser, dict[str, CommandParser]]:
    """The parser of `recoup`, and the parsers of its commands by name."""
    parser = CommandParser(
        prog="recoup",
        usage="recoup [--help | --version] COMMAND ...",
        description="Runs an unmodified PyTorch program in a memory budget.",
        epilog="commands for research on traces:\n"
        "    layout    plan addresses for buffers with known lifetimes\n"
        "    order     reorder the ops of a trace to lower its peak memory",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"recoup {recoup.__version__}")
    commands = parser.add_subparsers(
        prog="recoup", title="commands", required=True, metavar="COMMAND"
    )
    add_run_command(commands)
    add_compare_command(commands)
    add_policies_command(commands)
    add_suggest_command(commands)
    add_simulate_command(commands)
    add_verify_command(commands)
    add_bench_command(commands)
    add_doctor_command(commands)
    add_glossary_command(commands)
    add_layout_command(commands)
    add_order_command(commands)
    return parser, dict(commands.choices)


def _check_first(
    words: Sequence[str], parser: CommandParser, commands: dict[str, CommandParser]
) -> None:
    """Ends the process if the first word is neither a command nor an option of `recoup`."""
    if not words or words[0] in commands or words[0] in parser.option_names():
        return
    word = words[0].partition("=")[0]
    if not word.startswith("-"):
        if word.endswith(".py"):
            parser.error(
                f"unknown command {word}; to run a script, write recoup run --budget SIZE {word}"
            )
        near = did_you_mean(word, commands)
        parser.error(f"unknown command {word}{near or f'; the commands are {_listed(commands)}'}")
    owners = [name for name, command in commands.items() if word in command.option_names()]
    if owners:
        parser.error(f"{word} is an option of recoup {owners[0]}: put it after `{owners[0]}`")
    near = did_you_mean(word, parser.option_names())
    parser.error(
        f"unknown option {word} before the "
        f"command{near or f'; the commands are {_listed(commands)}'}"
    )


def _end_interrupted(command: str) -> NoReturn:
    """Ends the process at once: a simulation on another thread cannot be interrupted."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    print(f"recoup {command}: interrupted", file=sys.stderr, flush=True)
    os._exit(INTERRUPTED)


def _listed(commands: dict[str, CommandParser]) -> str:
    return ", ".join(commands)
