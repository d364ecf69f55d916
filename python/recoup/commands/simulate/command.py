"""Simulates a trace under policies and budgets; makes a table, JSON, a plot and a timeline."""

import argparse
import itertools
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import track

from recoup._reporting.files import write_atomically
from recoup._reporting.moments import chrome_json
from recoup.commands.budget_arguments import tuning_of, with_option
from recoup.commands.exit_codes import NOT_WRITTEN
from recoup.commands.simulate.checks import Case, parse_budgets
from recoup.commands.simulate.output import print_table
from recoup.commands.simulate.picture import Row, draw_plot
from recoup.offline.dtr import DtrProgram
from recoup.offline.dtr_log import read_any_trace
from recoup.offline.in_threads import in_threads
from recoup.offline.optimum import Optimum, optimum
from recoup.offline.traces import Trace
from recoup.options import SimulationOptions

_Result = TypeVar("_Result")


def run(options: argparse.Namespace) -> int:
    """Prints the table and writes the files. Returns the exit code."""
    cases: list[Case] = options.cases
    try:
        trace = _read(options)
        peak_bytes = trace.unbudgeted_peak_bytes()
        if peak_bytes == 0:
            raise ValueError(
                f"{options.trace}: its tensors have no bytes, so there is no budget to simulate"
            )
        budgets = parse_budgets(options.budgets, peak_bytes)
        rows = _run_all(trace, cases, budgets, options)
        if all(row.run.status == "out of budget" for row in rows):
            largest = max((row.run for row in rows), key=lambda run: run.budget_bytes)
            raise ValueError(f"no budget is enough; with policy {largest.policy}: {largest.reason}")
        optima = _search_all(trace, budgets, options) if isinstance(trace, Trace) else []
        drawn = _rows_to_draw(trace, cases, rows, budgets, options)
    except (OSError, ValueError) as error:
        options.fail(with_option(str(error)))
    print_table(rows, optima, budgets, peak_bytes, trace.op_count)
    result = {
        "trace": options.trace,
        "preset": options.preset,
        "ops": trace.op_count,
        "unbudgeted_peak_bytes": peak_bytes,
        "rows": [
            {**case.to_dict(), **row.run.to_dict()}
            for (case, _), row in zip(itertools.product(cases, budgets), rows, strict=True)
        ],
        "optima": [found.to_dict() for found in optima],
    }
    try:
        if options.json is not None:
            write_atomically(options.json, json.dumps(result, indent=2) + "\n")
        if options.timeline is not None and isinstance(trace, Trace):
            moments = trace.timeline(budgets[0], _settings(options, cases[0]))
            write_atomically(options.timeline, chrome_json(moments, budgets[0]))
        if options.plot is not None:
            draw_plot(drawn, optima, peak_bytes, Path(options.trace).name, options.plot)
    except OSError as error:
        print(f"recoup simulate: cannot write: {error}", file=sys.stderr)
        return NOT_WRITTEN
    except ValueError as error:
        options.fail(with_option(str(error)))
    return 0


def _read(options: argparse.Namespace) -> Trace | DtrProgram:
    if options.preset:
        return DtrProgram.read(options.trace)
    trace = read_any_trace(options.trace)
    steps = trace.steps()
    if options.optimum and steps > 1:
        print(f"The last of {steps} steps:")
        return trace.step()
    return trace


def _settings(options: argparse.Namespace, case: Case) -> SimulationOptions:
    return SimulationOptions(
        policy=case.policy,
        max_time_ratio=options.max_time_ratio,
        layout=not options.no_layout,
        oracle=tuple(options.oracle),
        plan_ahead=options.plan_ahead,
        noise=options.noise,
        spill=case.spill,
        spill_bandwidth=case.bandwidth,
        spill_request_ns=options.spill_request_ns,
        **tuning_of(options),
    )


def _run_all(
    trace: Trace | DtrProgram, cases: list[Case], budgets: list[int], options: argparse.Namespace
) -> list[Row]:
    """Simulates each case in each budget; returns the rows case by case."""

    def run(cell: tuple[Case, int]) -> Row:
        case, budget = cell
        if isinstance(trace, DtrProgram):
            limit = options.max_time_ratio
            simulated = trace.simulate(budget, policy=case.policy, max_time_ratio=limit)
        else:
            simulated = trace.simulate(budget, _settings(options, case))
        return Row(case.column, simulated)

    cells = list(itertools.product(cases, budgets))
    return list(_tracked(in_threads(run, cells, options.jobs), len(cells), "simulating"))


def _search_all(trace: Trace, budgets: list[int], options: argparse.Namespace) -> list[Optimum]:
    if not options.optimum:
        return []
    found = (optimum(trace, budget, time_limit=options.time_limit) for budget in budgets)
    return list(_tracked(found, len(budgets), "searching the optimum"))


def _tracked(results: Iterable[_Result], total: int, description: str) -> Iterable[_Result]:
    return track(
        results,
        total=total,
        description=description,
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )


def _rows_to_draw(
    trace: Trace | DtrProgram,
    cases: list[Case],
    rows: list[Row],
    budgets: list[int],
    options: argparse.Namespace,
) -> list[Row]:
    """Adds the oracle, which every plot shows for comparison."""
    oracle = Case("oracle")
    if options.plot is None or oracle in cases or options.preset is not None:
        return rows
    return rows + _run_all(trace, [oracle], budgets, options)
