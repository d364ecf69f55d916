"""Plain tables of the command line."""

from rich import box
from rich.console import Console
from rich.table import Table

_WIDEST = 1000  # columns


def plain_table(*columns: str, texts: int = 1) -> Table:
    """The first `texts` columns to the left, numbers to the right."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index < texts else "right")
    return table


def print_table(table: Table) -> None:
    """On standard output, and in full: a narrower terminal breaks its lines."""
    console = Console()
    needed = console.measure(table, options=console.options.update(width=_WIDEST)).maximum
    Console(width=max(console.width, needed)).print(table)
