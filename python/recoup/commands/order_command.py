"""The command `recoup order`: orders of a trace's ops, and the bytes that live then."""

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

from recoup.files import write_atomically
from recoup.offline.dtr_log import add_trace_argument, read_any_trace
from recoup.offline.order import Choice, Order, long_life_rules, traversals
from recoup.offline.traces import Trace
from recoup.sizes import format_bytes
from recoup.tables import plain_table, print_table

_ALL = "all"


def add_order_command(commands: Any) -> None:
    """Adds `order` to the commands of the command line."""
    parser = commands.add_parser(
        "order",
        help="order a trace's ops so that fewer bytes live",
        description="Orders the ops of each step anew and prints the lower bound: the most bytes "
        "that live at one op. No layout of that order takes less.",
    )
    add_trace_argument(parser)
    _add_choice(parser, "--order", "NAME", traversals(), "")
    _add_choice(parser, "--long-life", "RULE", long_life_rules(), "what moves ops afterwards: ")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all orders to this file")
    parser.add_argument(
        "--write",
        type=Path,
        metavar="FILE.rtrace",
        help="write the trace in the order of the least bound",
    )
    parser.set_defaults(command=_run, fail=parser.error)


def _add_choice(
    parser: argparse.ArgumentParser, option: str, metavar: str, rows: list[Choice], what: str
) -> None:
    """An option that takes the name of a row, or all."""
    names = [row.name for row in rows]
    parser.add_argument(
        option,
        default=_ALL,
        choices=[*names, _ALL],
        metavar=metavar,
        help=f"{what}{', '.join(names)}, or all (default: all)",
    )


def _run(options: argparse.Namespace) -> int:
    for name, path in (("--json", options.json), ("--write", options.write)):
        if path is not None and not path.absolute().parent.is_dir():
            options.fail(f"no such directory for {name}: {path.absolute().parent}")
    try:
        trace = read_any_trace(options.trace)
        rows = _orders(trace, options)
    except (OSError, ValueError) as error:
        options.fail(str(error))
    print(
        f"the program's own order: {rows[0].program_bound_bytes:,} bytes "
        f"({format_bytes(rows[0].program_bound_bytes)}), {len(rows[0].ops):,} ops"
    )
    _print(rows)
    try:
        if options.json is not None:
            result = {"trace": options.trace, "orders": [dataclasses.asdict(row) for row in rows]}
            write_atomically(options.json, json.dumps(result) + "\n")
        if options.write is not None:
            least = min(rows, key=lambda row: row.bound_bytes)
            trace.reordered(least.ops).write(options.write)
            print(f"{options.write}: {least.traversal}, {least.long_life}")
    except OSError as error:
        options.fail(f"cannot write: {error}")
    return 0


def _orders(trace: Trace, options: argparse.Namespace) -> list[Order]:
    return [
        trace.order(traversal=order.name, long_life=rule.name)
        for order in traversals()
        for rule in long_life_rules()
        if options.order in (order.name, _ALL) and options.long_life in (rule.name, _ALL)
    ]


def _print(rows: list[Order]) -> None:
    table = plain_table("order", "long life", "moves", "bound", "size", "to the program's", texts=2)
    for row in rows:
        before = row.program_bound_bytes
        table.add_row(
            row.traversal,
            row.long_life,
            f"{row.moves:,}",
            f"{row.bound_bytes:,}",
            format_bytes(row.bound_bytes),
            f"{row.bound_bytes / before if before else 1.0:.4f}x",
        )
    print_table(table)
