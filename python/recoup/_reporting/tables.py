"""Plain tables, on standard output and in texts. Loads rich, which `import recoup` does not."""

import io

from rich import box
from rich.console import Console
from rich.table import Table

_WIDEST = 1000  # columns


def plain_table(*columns: str, texts: int = 1, ruled: bool = True) -> Table:
    """The first `texts` columns to the left, numbers to the right; a line below their names."""
    table = Table(box=box.SIMPLE_HEAD if ruled else None, show_edge=False, pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index < texts else "right")
    return table


def print_table(table: Table) -> None:
    """On standard output, and in full: a narrower terminal breaks its lines."""
    console = Console()
    needed = console.measure(table, options=console.options.update(width=_WIDEST)).maximum
    Console(width=max(console.width, needed)).print(table)


def format_table(table: Table) -> str:
    """For a log: the same wherever it is made, without colors and however wide."""
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
