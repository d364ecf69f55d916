"""Plain tables, on standard output and in texts. Loads rich, which `import recoup` does not."""

import io

from rich import box
from rich.console import Console
from rich.table import Table

_WIDEST = 1000  # columns


def plain_table(*columns: str, texts: int = 1, ruled: bool = True) -> Table:
    """A table with its first `texts` columns left-aligned, the others right-aligned.

    ruled: draw a line below the column names.
    """
    table = Table(box=box.SIMPLE_HEAD if ruled else None, show_edge=False, pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index < texts else "right")
    return table


def print_table(table: Table) -> None:
    """Prints the table in full; a terminal that is too narrow wraps its lines."""
    console = Console(markup=False, emoji=False)
    needed = console.measure(table, options=console.options.update(width=_WIDEST)).maximum
    Console(width=max(console.width, needed), markup=False, emoji=False).print(table)


def format_table(table: Table) -> str:
    """The table as text for a log: without colors, and independent of the terminal."""
    console = Console(
        file=io.StringIO(),
        width=_WIDEST,
        color_system=None,
        force_terminal=False,
        force_jupyter=False,
        markup=False,
        emoji=False,
        highlight=False,
    )
    with console.capture() as captured:
        console.print(table)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())
