"""Tables of results: printed, or in Markdown.

A table's columns have, by their name, the format of a cell, such as "{net} in {budget:,.1fMB}": the
names in it are those of a row. Formats may end in a unit of bytes or seconds, MB, GB or ms. A cell
with a value that is None is "-".
"""

import string
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from recoup._reporting import tables

Columns = Mapping[str, str]
_Row = TypeVar("_Row", bound=Mapping[str, Any])


_UNITS = {"MB": 1e6, "GB": 1e9, "ms": 1e-3}


class _Formatter(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        if value is None:
            raise _NoValueError
        if isinstance(value, bool):
            return "yes" if value else "no"
        size = _UNITS.get(format_spec[-2:])
        if size is None:
            return format(value, format_spec)
        return f"{format(value / size, format_spec[:-2])} {format_spec[-2:]}"


class _NoValueError(Exception):
    pass


def cells_of(columns: Columns, row: Mapping[str, Any]) -> list[str]:
    """The cells of a row, in the order of the columns."""
    return [_formatted(form, row) for form in columns.values()]


def _formatted(form: str, row: Mapping[str, Any]) -> str:
    try:
        return _Formatter().vformat(form, (), row)
    except _NoValueError:
        return "-"


def print_cells(
    title: str, columns: Iterable[str], rows: Iterable[Iterable[str]], *, texts: int = 1
) -> None:
    """Prints a table of finished cells; the first `texts` columns are text, the others numbers.

    title: printed above it; empty: there is none.
    """
    table = tables.plain_table(*columns, texts=texts)
    table.title, table.title_justify = title or None, "left"
    for row in rows:
        table.add_row(*row)
    tables.print_table(table)


def print_rows(
    title: str, columns: Columns, rows: Iterable[Mapping[str, Any]], *, texts: int = 1
) -> None:
    """As `print_cells`, with the cells that the columns' formats make."""
    print_cells(title, columns, (cells_of(columns, row) for row in rows), texts=texts)


def markdown_lines(columns: Iterable[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table of finished cells in Markdown."""
    names = list(columns)
    return [f"| {' | '.join(cells)} |" for cells in (names, ["---"] * len(names), *rows)]


def print_markdown(columns: Columns, rows: Iterable[_Row]) -> list[_Row]:
    """Prints a table in Markdown, each row when it is known, and returns the rows."""
    print("\n".join(markdown_lines(columns, [])), flush=True)
    known = []
    for row in rows:
        print(markdown_lines((), [cells_of(columns, row)])[2], flush=True)
        known.append(row)
    return known
