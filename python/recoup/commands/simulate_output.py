"""What `recoup simulate` shows: a table, and a plot of the same figures."""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from recoup.files import write_atomically
from recoup.offline.optimum import Optimum
from recoup.offline.traces import Simulation

_MARKS = {"out of budget": "-", "too slow": "slow"}


@dataclass(frozen=True)
class Row:
    """A run, and what heads its column: policy and second tier."""

    column: str
    run: Simulation


def _optimum_cell(found: Optimum) -> str:
    if found.bound is None:
        return "-"
    if found.time_ratio is None:
        return f">= {found.bound:.4f}"
    if found.status == "optimal":
        return f"{found.time_ratio:.4f}"
    return f"{found.bound:.4f}..{found.time_ratio:.4f}"


def print_table(
    rows: list[Row],
    optima: list[Optimum],
    budgets: list[int],
    peak_bytes: int,
    op_count: int,
) -> None:
    print(f"{op_count:,} ops, unbudgeted peak {peak_bytes:,} bytes. Time ratios:")
    table = Table()
    table.add_column("budget", justify="right")
    table.add_column("bytes", justify="right")
    columns = list(dict.fromkeys(row.column for row in rows))
    for column in columns:
        table.add_column(column, justify="right")
    if optima:
        table.add_column("optimum", justify="right")
    optimum_cells = {found.budget_bytes: [_optimum_cell(found)] for found in optima}
    by_case = {(row.column, row.run.budget_bytes): row.run for row in rows}
    for budget in budgets:
        cells = [
            f"{run.time_ratio:.4f}" if run.status == "ok" else _MARKS[run.status]
            for run in (by_case[column, budget] for column in columns)
        ]
        table.add_row(
            f"{100 * budget / peak_bytes:.4g} %",
            f"{budget:,}",
            *cells,
            *optimum_cells.get(budget, []),
        )
    # Figures are worth more than the width of a window.
    lines = [column.splitlines() for column in columns]
    width = 40 + sum(max(12, *(len(line) + 3 for line in each)) for each in lines)
    width += 20 * bool(optima)
    Console(width=max(Console().width, width)).print(table)
    if any(row.run.status != "ok" for row in rows):
        print("-: out of budget; slow: over the bound of --max-time-ratio")
    if any(found.status == "feasible" for found in optima):
        print("A..B: B is reached, and no policy can be below A")


def draw_plot(
    rows: list[Row], optima: list[Optimum], peak_bytes: int, title: str, path: Path
) -> None:
    """Raises ModuleNotFoundError without matplotlib, OSError where `path` cannot be written."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    for column in dict.fromkeys(row.column for row in rows):
        points = sorted(
            (100 * row.run.budget_bytes / peak_bytes, row.run.time_ratio)
            for row in rows
            if row.column == column and row.run.status == "ok"
        )
        shares, ratios = ([point[i] for point in points] for i in (0, 1))
        style: dict[str, Any] = (
            {"color": "grey", "linestyle": "--"} if column == "oracle" else {"marker": "o"}
        )
        axes.plot(
            shares, ratios, markersize=2.5, linewidth=1, label=column.replace("\n", " "), **style
        )
    shown = sorted(
        (100 * found.budget_bytes / peak_bytes, found.bound, found.time_ratio)
        for found in optima
        if found.bound is not None and found.time_ratio is not None
    )
    if shown:
        shares, bounds, ratios = ([point[i] for point in shown] for i in (0, 1, 2))
        axes.plot(shares, ratios, color="black", marker="o", markersize=2.5, label="optimum")
        axes.fill_between(shares, bounds, ratios, color="black", alpha=0.2, linewidth=0)
    axes.axhline(1.0, color="grey", linewidth=0.8, linestyle=":")
    axes.set_xlabel("budget, % of the unbudgeted peak")
    axes.set_ylabel("time ratio")
    axes.set_title(title, fontsize=10)
    axes.legend(fontsize=8)
    figure.tight_layout()
    picture = io.BytesIO()
    figure.savefig(picture, dpi=150, format=path.suffix.lstrip(".") or "png")
    write_atomically(path, picture.getvalue())
