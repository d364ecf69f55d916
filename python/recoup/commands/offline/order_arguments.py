"""The arguments of `recoup order`."""

import argparse
from typing import Any

from recoup.commands.argument_types import add_trace_argument, choice, file_to_write
from recoup.known_names import names

ALL = "all"


def add_order_command(commands: Any) -> None:
    """Adds `order` to the commands of the command line."""
    parser = commands.add_parser(
        "order",
        usage="recoup order TRACE [options]",
        description="Reorders the ops of each step and prints the lower bound of each order: the "
        "most bytes that are live during one op. No layout of that order takes less.",
    )
    add_trace_argument(parser)
    _add_choice(parser, "--order", "NAME", names("order_traversals"), "the traversal: ")
    _add_choice(
        parser, "--long-life", "RULE", names("order_rules"), "the rule that moves ops afterwards: "
    )
    parser.add_argument(
        "--json", type=file_to_write(), metavar="FILE", help="write all orders to FILE as JSON"
    )
    parser.add_argument(
        "--write",
        type=file_to_write(),
        metavar="FILE.rtrace",
        help="write the trace in the order with the least bound to FILE.rtrace",
    )
    parser.set_defaults(command=_run, fail=parser.error)


def _add_choice(
    parser: argparse.ArgumentParser, option: str, metavar: str, known: list[str], what: str
) -> None:
    """Adds an option that takes one of `known`, or all."""
    parser.add_argument(
        option,
        default=ALL,
        type=choice([*known, ALL]),
        metavar=metavar,
        help=f"{what}{', '.join(known)}, or all (default: all)",
    )


def _run(options: argparse.Namespace) -> int:
    from recoup.commands.offline.order_command import run

    return run(options)
