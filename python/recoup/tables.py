"""Plain tables of the command line."""

from rich import box
from rich.console import Console
from rich.table import Table

_PIPE_COLUMNS = 200  # of a table that goes to no terminal


def plain_table(*columns: str, texts: int = 1) -> Table:
    """The first `texts` columns to the left, numbers to the right."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index < texts else "right")
    return table


def print_table(table: Table) -> None:
    """On standard output, in full where that is no terminal."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=max(console.width, _PIPE_COLUMNS))
    console.print(table)
