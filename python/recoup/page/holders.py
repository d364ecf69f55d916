"""Tables of the holders of memory at one moment, and of values that cannot be evicted."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from recoup._memory.sizes import format_bytes
from recoup.page.tables import Cell, count_cell, row_html, size_cell, table_html
from recoup.page.texts import NOTHING, count_text, escape, module_name, percent

_LARGE = 0.05  # of all held bytes: a module with this fraction of a kind has a row of its own


def holders_tables(rows: Sequence[Mapping[str, Any]], whole: int, *, label: str) -> str:
    """Holders of memory at one moment: by kind; and by module and kind, largest first.

    The small modules of each kind share a row, which a click opens. `whole`: total held bytes.
    """
    if not rows:
        return "<p>No memory was held.</p>"
    by_kind = [_held_row(escape(row["kind"]), "", row, whole) for row in _summed(rows, ("kind",))]
    by_module = [
        _held_row(name, row["kind"], row, whole)
        for name, row in _with_small_ones_together(_summed(rows, ("module", "kind")), whole)
    ]
    sizes = ("size", "of the whole", "values")
    columns = ("module", "kind")
    return (
        f'<div class="pair">{table_html(("kind", *sizes), {"kind"}, by_kind, label=label)}'
        + table_html((*columns, *sizes), columns, by_module, label=f"{label}, by module")
        + "</div>"
    )


def _with_small_ones_together(
    rows: Sequence[dict[str, Any]], whole: int
) -> list[tuple[str, dict[str, Any]]]:
    """Rows with their HTML names; two or more small rows of one kind become one row."""
    large = [row for row in rows if row["bytes"] >= _LARGE * whole]
    found = [(f"<bdi>{escape(module_name(row['module']))}</bdi>", row) for row in large]
    for together in _summed((row for row in rows if row not in large), ("kind",)):
        small = [row for row in rows if row["kind"] == together["kind"] and row not in large]
        name = f"<bdi>{escape(module_name(small[0]['module']))}</bdi>"
        if len(small) > 1:
            lines = "".join(f"<li>{_held_text(row)}</li>" for row in small)
            name = (
                f"<details><summary>{count_text(len(small))} modules</summary>"
                f"<ul>{lines}</ul></details>"
            )
        found.append((name, together))
    return sorted(found, key=lambda item: -int(item[1]["bytes"]))


def _held_text(row: Mapping[str, Any]) -> str:
    values = f"{count_text(row['values'])} value{'' if row['values'] == 1 else 's'}"
    name = escape(module_name(row["module"]))
    return f"<bdi>{name}</bdi>: {format_bytes(row['bytes'])}, {values}"


def _held_row(name: str, kind: str, row: Mapping[str, Any], whole: int) -> str:
    size = row["bytes"]
    of_kind = f'<td class="kind">{escape(kind)}</td>' if kind else ""
    cells = (size_cell(size), Cell(percent(size, whole), size), count_cell(row["values"]))
    return f"<tr><td>{name}</td>{of_kind}{''.join(cell.to_html() for cell in cells)}</tr>"


def _summed(rows: Iterable[Mapping[str, Any]], keys: Sequence[str]) -> list[dict[str, Any]]:
    """Sums rows with the same keys: their bytes and values; largest first."""
    sums: dict[tuple[str, ...], list[int]] = {}
    for row in rows:
        total = sums.setdefault(tuple(row[key] for key in keys), [0, 0])
        total[0] += row["bytes"]
        total[1] += row["values"]
    found = [
        {**dict(zip(keys, key, strict=True)), "bytes": size, "values": values}
        for key, (size, values) in sums.items()
    ]
    return sorted(found, key=lambda row: -int(row["bytes"]))


def _totals(rows: Sequence[Mapping[str, Any]], what: str) -> str:
    return f"{count_text(len(rows))} {what}, {format_bytes(sum(row['bytes'] for row in rows))}"


def pinned_table(pinned: Sequence[Mapping[str, Any]]) -> str:
    """Values that cannot be evicted, by holder and kind; and, folded, by op and module."""
    if not pinned:
        return "<p>Every value could be evicted.</p>"
    short = ("by", "kind")
    table = _pinned_rows(_summed(pinned, short), ("held by", "kind"), short, "Pinned")
    every = ("by", "kind", "op", "module", "why")
    rows = _summed(pinned, every)
    columns = ("held by", "kind", "made by", "module", "reason")
    return (
        f"{table}<details><summary>{_totals(rows, 'rows')}, by op and module</summary>"
        f"{_pinned_rows(rows, columns, every, 'Pinned, by op')}</details>"
    )


def _pinned_rows(
    rows: Iterable[Mapping[str, Any]], columns: Sequence[str], keys: Sequence[str], label: str
) -> str:
    def text(row: Mapping[str, Any], key: str) -> Cell:
        return Cell(module_name(row[key]) if key == "module" else row[key] or NOTHING)

    cells = (
        row_html(
            (
                *(text(row, key) for key in keys),
                size_cell(row["bytes"]),
                count_cell(row["values"]),
            )
        )
        for row in rows
    )
    return table_html((*columns, "size", "values"), columns, cells, label=label)
