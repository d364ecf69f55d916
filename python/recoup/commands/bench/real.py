"""`recoup bench --size real`: prints one line per run, then tables; writes files."""

import argparse
import sys
from typing import Any

from recoup.bench.harness.tables import print_cells
from recoup.commands.bench.arguments import chosen, parse_fractions


def run(options: argparse.Namespace) -> None:
    """Runs the cases. Raises ValueError for unknown names, BitsDifferError, RuntimeError."""
    from recoup.bench.nets.real import REAL_NETS
    from recoup.bench.real import page, picture, runner
    from recoup.bench.real.results import Plan, open_results

    plan = Plan(
        nets=chosen(options.nets, [real.net.name for real in REAL_NETS]),
        fractions=None if options.budgets is None else parse_fractions(options.budgets),
        steps=options.steps,
        rounds=options.rounds,
        seed=options.seed,
        spill=options.spill,
        spill_dir=options.spill_dir,
    )
    results = open_results(options.out, plan)
    for what in runner.run_all(plan, results, options.out):
        print(what, file=sys.stderr, flush=True)
    _print_tables(plan, results)
    if options.plot is not None:
        picture.draw(plan, results, options.plot)
    if options.page is not None:
        page.write_page(plan, results, options.page)


def _print_tables(plan: Any, results: Any) -> None:
    from recoup.bench.real.summary import remarks, summaries
    from recoup.bench.real.table import COLUMNS, cells, title

    for summary in summaries(plan, results):
        print(f"{title(summary)}; medians of {len(summary.plain.runs)} rounds")
        print_cells("", COLUMNS, (cells(summary, line) for line in summary.lines))
        print(*remarks(summary), "", sep="\n")
