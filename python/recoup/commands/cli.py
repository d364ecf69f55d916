"""The command line: its commands, and what they have in common."""

import argparse
from collections.abc import Sequence
from typing import NoReturn

import recoup
from recoup.commands.bench_command import add_bench_command
from recoup.commands.doctor_command import add_doctor_command
from recoup.commands.layout_command import add_layout_command
from recoup.commands.order_command import add_order_command
from recoup.commands.run_command import add_run_command
from recoup.commands.simulate_command import add_simulate_command
from recoup.commands.suggest_command import add_suggest_command
from recoup.tables import format_table, plain_table

_USAGE_ERROR = 2


class _Parser(argparse.ArgumentParser):
    """Errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(_USAGE_ERROR, f"{self.prog}: error: {message}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command that `argv` (by default the process's own arguments) says.

    Returns the exit code. What the user's program raises passes through, SystemExit and
    KeyboardInterrupt included, so that Python ends as it would without us.
    """
    options = _parser().parse_args(argv)
    code: int = options.command(options)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="recoup", description="Runs an unmodified PyTorch program in a memory budget."
    )
    parser.add_argument("--version", action="version", version=f"recoup {recoup.__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    add_run_command(commands)
    policies = commands.add_parser("policies", help="list the policies")
    policies.set_defaults(command=_print_policies)
    add_suggest_command(commands)
    add_simulate_command(commands)
    add_layout_command(commands)
    add_order_command(commands)
    add_bench_command(commands)
    add_doctor_command(commands)
    return parser


def _print_policies(_: argparse.Namespace) -> int:
    def yes(is_on: bool) -> str:
        return "yes" if is_on else "no"

    columns = ("policy", "small filter", "sampling", "what it evicts first")
    table = plain_table(*columns, texts=len(columns), ruled=False)
    for p in recoup.policies(simulated=True):
        table.add_row(p.name, yes(p.small_filter), yes(p.sampling), p.summary)
    print(format_table(table))
    return 0
