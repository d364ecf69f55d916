"""The table of `recoup simulate`."""

from rich.console import Console
from rich.table import Table

from recoup.commands.simulate.picture import Row
from recoup.offline.optimum import Optimum

_MARKS = {"out of budget": "-", "too slow": "slow"}


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
    # Wide tables exceed the window rather than lose digits.
    lines = [column.splitlines() for column in columns]
    width = 40 + sum(max(12, *(len(line) + 3 for line in each)) for each in lines)
    width += 20 * bool(optima)
    Console(width=max(Console().width, width)).print(table)
    if any(row.run.status != "ok" for row in rows):
        print("-: out of budget; slow: above --max-time-ratio")
    if any(found.status == "feasible" for found in optima):
        print("A..B: the search found B, and no policy can be below A")
