"""The tables of a page. They work without scripts; scripts make them sortable."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recoup._memory.sizes import format_bytes
from recoup._reporting.report import format_ns
from recoup.page.palette import KINDS
from recoup.page.texts import (
    NOTHING,
    count_text,
    escape,
    module_name,
    percent,
    ratio_text,
    value_text,
)
from recoup.page.tree import Module, module_tree


@dataclass(frozen=True)
class Cell:
    """Text of a cell, and the number that it stands for, by which its column is sorted."""

    text: str
    number: float | None = None

    def to_html(self) -> str:
        if self.number is None:
            return f"<td>{escape(self.text)}</td>"
        return f'<td class="n" data-v="{self.number}">{escape(self.text)}</td>'


def size_cell(count: int) -> Cell:
    """A cell of a size in bytes."""
    return Cell(format_bytes(count) if count else NOTHING, count)


def time_cell(duration_ns: int) -> Cell:
    """A cell of a duration in nanoseconds."""
    return Cell(format_ns(duration_ns) if duration_ns else NOTHING, duration_ns)


def count_cell(count: int) -> Cell:
    """A cell of a plain count."""
    return Cell(count_text(count) if count else NOTHING, count)


def table_html(
    columns: Sequence[str],
    texts: Collection[str],
    rows: Iterable[str],
    *,
    label: str,
    name: str = "plain",
) -> str:
    """A table of `rows` (as `<tr>`) under `columns`; columns in `texts` hold no numbers."""
    heads = "".join(
        f'<th scope="col"{"" if column in texts else _NUMBERS}>{escape(column)}</th>'
        for column in columns
    )
    body = "\n".join(rows)
    return (
        f'<div class="scroll"><table class="{name}" aria-label="{escape(label)}">'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


_NUMBERS = ' class="n"'


def row_html(cells: Iterable[Cell], attributes: str = "") -> str:
    """`cells` as a `<tr>`."""
    return f"<tr{attributes}>{''.join(cell.to_html() for cell in cells)}</tr>"


def modules_table(report: Mapping[str, Any], most_rows: int | None = None) -> str:
    """The tree of modules: bytes at the peak by kind, ops, replays and evictions of each.

    most_rows: if there are more, deeper modules are left out, and counted below the table.
    """
    peak_rows = report["peak"]["rows"]
    held = {row["kind"] for row in peak_rows if row["bytes"]}
    kinds = [kind for kind in KINDS if kind in held]
    modules = module_tree(report["modules"], peak_rows)
    if not modules:
        return "<p>No module ran an op or held memory.</p>"
    shown, left_out = modules, 0
    if most_rows is not None and len(modules) > most_rows:
        shown = _upper(modules, most_rows)
        left_out = len(modules) - len(shown)
    columns = ["module", "at the peak", *kinds, "ops", "time", "replays", "cost of replays"]
    ids = {module.name: index for index, module in enumerate(modules)}
    rows = (_module_row(module, kinds, ids) for module in shown)
    columns += ["evictions", "evicted"]
    table = table_html(columns, {"module"}, rows, label="Modules", name="modules")
    if not left_out:
        return table
    return f"{table}<p>{count_text(left_out)} more modules are not shown.</p>"


def _upper(modules: Sequence[Module], most: int) -> list[Module]:
    """Outermost modules, at most `most`, then whole further levels as long as they fit."""
    shown = [module for module in modules if not module.depth][:most]
    for depth in range(1, max(module.depth for module in modules) + 1):
        upper = [module for module in modules if module.depth <= depth]
        if len(upper) > most:
            break
        shown = upper
    return shown


def _module_row(module: Module, kinds: Sequence[str], ids: Mapping[str, int]) -> str:
    parent = "" if module.above is None else f' data-parent="{ids[module.above]}"'
    name = f'<th scope="row" title="{escape(module_name(module.name))}">'
    # Indents without a style attribute, which the page's policy forbids.
    name += '<span class="in"></span>' * module.depth
    name += f"<bdi>{escape(module.label or module_name(module.name))}</bdi></th>"
    counts = module.counts
    cells = [
        size_cell(sum(module.peak_bytes.values())),
        *(size_cell(module.peak_bytes.get(kind, 0)) for kind in kinds),
        count_cell(counts["ops"]),
        time_cell(counts["op_ns"]),
        count_cell(counts["replays"]),
        time_cell(counts["replay_ns"]),
        count_cell(counts["evictions"]),
        size_cell(counts["evicted_bytes"]),
    ]
    rest = "".join(cell.to_html() for cell in cells)
    return f'<tr data-id="{ids[module.name]}"{parent}>{name}{rest}</tr>'


_MARKS = {"knee": "knee: less memory costs much more time", "least": "least budget that works"}


def suggestions_table(suggestions: Sequence[Mapping[str, Any]]) -> str:
    """Predicted cost of the program in other budgets."""
    if not suggestions:
        return "<p>No budgets were simulated.</p>"
    rows = []
    for row in suggestions:
        ratio, resident = row["time_ratio"], row["rss_bytes"]
        cells = (
            size_cell(row["budget_bytes"]),
            Cell(percent(row["fraction"], 1), row["fraction"]),
            Cell(NOTHING, -1) if ratio is None else Cell(ratio_text(ratio), ratio),
            Cell(NOTHING, -1) if resident is None else size_cell(resident),
            Cell(row["status"] or NOTHING),
            Cell(_MARKS.get(row["mark"], row["mark"])),
        )
        rows.append(row_html(cells, ' class="marked"' if row["mark"] else ""))
    columns = ("budget", "of the peak", "time", "resident", "status", "mark")
    return table_html(columns, columns[4:], rows, label="Suggestions")


def pairs_table(pairs: Mapping[str, Any], *, label: str) -> str:
    """Names and values: settings, versions, counters."""
    if not pairs:
        return "<p>None.</p>"
    rows = (
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(value_text(name, value))}</td></tr>'
        for name, value in pairs.items()
    )
    return table_html((label, "value"), (label, "value"), rows, label=label, name="pairs")
