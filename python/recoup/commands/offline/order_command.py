"""The command `recoup order`: reorders the ops of a trace and prints the live bytes."""

import argparse
import dataclasses
import json
import sys

from recoup._memory.sizes import format_bytes
from recoup._reporting.files import write_atomically
from recoup._reporting.tables import plain_table, print_table
from recoup.commands.exit_codes import NOT_WRITTEN
from recoup.commands.offline.order_arguments import ALL
from recoup.offline.dtr_log import read_any_trace
from recoup.offline.order import Order, long_life_rules, traversals
from recoup.offline.traces import Trace


def run(options: argparse.Namespace) -> int:
    """Prints the orders and writes the files. Returns the exit code."""
    try:
        trace = read_any_trace(options.trace)
        rows = _orders(trace, options)
    except (OSError, ValueError) as error:
        options.fail(str(error))
    print(
        f"order of the program: {rows[0].program_bound_bytes:,} bytes "
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
            print(f"wrote {options.write}: {least.traversal}, {least.long_life}")
    except OSError as error:
        print(f"recoup order: cannot write: {error}", file=sys.stderr)
        return NOT_WRITTEN
    return 0


def _orders(trace: Trace, options: argparse.Namespace) -> list[Order]:
    return [
        trace.order(traversal=order.name, long_life=rule.name)
        for order in traversals()
        for rule in long_life_rules()
        if options.order in (order.name, ALL) and options.long_life in (rule.name, ALL)
    ]


def _print(rows: list[Order]) -> None:
    table = plain_table("order", "long life", "moves", "bound", "size", "vs. program", texts=2)
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
