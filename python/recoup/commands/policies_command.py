"""The command `recoup policies`: lists the eviction policies."""

import argparse
from typing import Any

from recoup.known_names import policies


def add_policies_command(commands: Any) -> None:
    """Adds `policies` to the commands of the command line."""
    parser = commands.add_parser(
        "policies", help="list the eviction policies", usage="recoup policies"
    )
    parser.set_defaults(command=_run, fail=parser.error)


def _run(_: argparse.Namespace) -> int:
    from recoup._reporting.tables import format_table, plain_table

    def yes(is_on: bool) -> str:
        return "yes" if is_on else "no"

    columns = ("policy", "small filter", "sampling", "what it evicts first")
    table = plain_table(*columns, texts=len(columns), ruled=False)
    for p in policies(simulated=True):
        table.add_row(p.name, yes(p.small_filter), yes(p.sampling), p.summary)
    print(format_table(table))
    return 0
