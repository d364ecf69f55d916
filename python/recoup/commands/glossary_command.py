"""The command `recoup glossary`: explains the terms of reports, pages and messages."""

import argparse
import textwrap
from typing import Any

from recoup.commands.argument_types import choice
from recoup.words import WORDS

_WIDTH = 88


def add_glossary_command(commands: Any) -> None:
    """Adds `glossary` to the commands of the command line."""
    parser = commands.add_parser(
        "glossary",
        help="explain the terms of reports, pages and messages",
        usage="recoup glossary [TERM]",
    )
    parser.add_argument(
        "term", nargs="?", type=choice(tuple(WORDS)), metavar="TERM", help="explain this term only"
    )
    parser.set_defaults(command=_run, fail=parser.error)


def _run(options: argparse.Namespace) -> int:
    terms = WORDS if options.term is None else {options.term: WORDS[options.term]}
    for term, meaning in terms.items():
        print(textwrap.fill(f"{term}: {meaning}", _WIDTH, subsequent_indent="    "))
    return 0
