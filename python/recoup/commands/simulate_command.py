"""`recoup simulate`: a trace under policies and budgets, as a table, JSON and a plot."""

import argparse
import importlib.util
import io
import json
import math
import os
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import track
from rich.table import Table

import recoup
from recoup.files import write_atomically
from recoup.offline.dtr_log import add_trace_argument, is_dtr_log, read_any_trace
from recoup.offline.dtr_simulator import DtrProgram, dtr_policies
from recoup.offline.optimum import Optimum, optimum
from recoup.offline.traces import Simulation, Trace, chrome_trace
from recoup.sizes import MOST_BYTES, check_whole, parse_bytes, percent_range

_Result = TypeVar("_Result")
# What --preset dtr has no use for.
_ENGINE_OPTIONS = (
    "cost_model",
    "replay_order",
    "eager_drop",
    "kinetic",
    "no_layout",
    "noise",
    "oracle",
    "seed",
    "timeline",
    "optimum",
    "time_limit",
    "spill",
    "spill_bandwidth",
)
_MOST_PERCENT = 1_000_000
_MARKS = {"out of budget": "-", "too slow": "slow"}


def add_simulate_command(commands: Any) -> None:
    """Adds the command to the parser's subparsers."""
    parser = commands.add_parser(
        "simulate",
        help="run a trace under policies and budgets, without its memory",
        description="Runs the engine over a trace on a device with no memory. What is printed is "
        "the time ratio: all op costs, replays included, over those of the program alone.",
    )
    add_trace_argument(parser)
    parser.add_argument(
        "--preset",
        choices=["dtr"],
        help="dtr: a log runs by the rules of the DTR authors' own simulator; its policies are "
        "those of their figures and of their ablation",
    )
    parser.add_argument(
        "--policy", nargs="+", metavar="NAME", help="or `all` (default: planned; of --preset: dtr)"
    )
    parser.add_argument(
        "--budgets",
        default="100..10:10",
        help="percents of the unbudgeted peak: FROM..TO:STEP, or a list such as 80,50,30; a list "
        "may have sizes such as 2GiB too (default: 100..10:10)",
    )
    parser.add_argument(
        "--max-time-ratio",
        type=float,
        metavar="RATIO",
        help="a slower run ends there (default: 10; of --preset dtr: 2, as theirs)",
    )
    parser.add_argument("--cost-model", default="measured", choices=["measured", "bytes"])
    parser.add_argument("--replay-order", default="memory", choices=["memory", "recursive"])
    parser.add_argument("--eager-drop", action="store_true", help="drop dead values at once: DTR's")
    parser.add_argument(
        "--no-layout", action="store_true", help="count bytes only: free memory is never in pieces"
    )
    parser.add_argument(
        "--oracle",
        type=float,
        nargs=4,
        default=[1.0, 1.0, 1.0, 1.0],
        metavar=("COST", "SIZE", "DISTANCE", "ANCESTORS"),
        help="of the policy oracle: three exponents and the weight of ancestors (default: 1 1 1 1)",
    )
    parser.add_argument(
        "--plan-ahead",
        action="store_true",
        default=None,
        help="schedules and lists are there from the first step on, as if it had run before",
    )
    parser.add_argument(
        "--noise",
        type=_noise,
        metavar="SEED:PERCENT",
        help="decide on costs that are measured as on a busy machine, off by so much; results "
        "count the true ones",
    )
    parser.add_argument(
        "--spill",
        metavar="SIZE",
        help="with a second tier of so many bytes",
    )
    parser.add_argument(
        "--spill-bandwidth",
        type=_bandwidth,
        metavar="READ,WRITE",
        help="of that tier, in GB/s (default: 0.8,0.8)",
    )
    parser.add_argument(
        "--optimum",
        action="store_true",
        help="search the least time ratio too; of a trace with several steps, all is of the last",
    )
    parser.add_argument(
        "--time-limit",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="of the search at each budget (default: 60)",
    )
    parser.add_argument(
        "--kinetic",
        action="store_true",
        help="consider all values, in policies that can by their kinetic order; none is sampled",
    )
    parser.add_argument("--seed", type=int, default=1033096058)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at once")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to this file")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the time ratios")
    parser.add_argument(
        "--timeline",
        type=Path,
        metavar="FILE",
        help="of one policy and one budget: a Chrome trace, for Perfetto and chrome://tracing",
    )
    parser.set_defaults(command=_simulate, fail=parser.error, default=parser.get_default)


def parse_budgets(text: str, peak_bytes: int) -> list[int]:
    """Bytes, in the order given. Raises ValueError that says what is allowed."""
    percents = percent_range(text)
    if percents is None:
        return [_parse_budget(part.strip(), peak_bytes) for part in text.split(",")]
    return [min(max(1, peak_bytes * percent // 100), MOST_BYTES) for percent in percents]


def _parse_budget(text: str, peak_bytes: int) -> int:
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        return parse_bytes(text, name="budget")
    if not 0 < percent <= _MOST_PERCENT:
        raise ValueError(f"a budget must be above 0 % and at most {_MOST_PERCENT} %; got {text!r}")
    return min(max(1, int(peak_bytes * percent / 100)), MOST_BYTES)


def _simulate(options: argparse.Namespace) -> int:
    if options.jobs < 1:
        options.fail(f"--jobs must be 1 or more; got {options.jobs}")
    known = _choose_preset(options)
    if not options.max_time_ratio >= 0:
        options.fail(f"--max-time-ratio must be 0 or more; got {options.max_time_ratio}")
    try:
        check_whole(options.seed, "--seed", 0, (1 << 64) - 1)
    except ValueError as error:
        options.fail(str(error))
    if options.policy is None:
        options.policy = ["planned"] if options.preset is None else ["dtr"]
    names = known if options.policy == ["all"] else options.policy
    if options.spill_bandwidth is not None and options.spill is None:
        options.fail("--spill-bandwidth is of a second tier: --spill SIZE")
    if options.optimum:
        _check_optimum(options)
    try:
        trace = _read(options)
        peak_bytes = trace.unbudgeted_peak_bytes()
        if peak_bytes == 0:
            raise ValueError(f"{options.trace}: it never holds a byte: there is nothing to budget")
        budgets = parse_budgets(options.budgets, peak_bytes)
        if options.timeline is not None and len(names) * len(budgets) != 1:
            raise ValueError("--timeline is of one policy and one budget")
        rows = _run_all(trace, names, budgets, options)
        if all(row.status == "out of budget" for row in rows):
            largest = max(rows, key=lambda row: row.budget_bytes)
            raise ValueError(f"no budget is enough; under {largest.policy}: {largest.reason}")
        optima = _search_all(trace, budgets, options) if isinstance(trace, Trace) else []
        drawn = _rows_to_draw(trace, names, rows, budgets, options)
    except (OSError, ValueError) as error:
        options.fail(str(error))
    _print_table(rows, optima, names, budgets, peak_bytes, trace.op_count)
    result = {
        "trace": options.trace,
        "preset": options.preset,
        "ops": trace.op_count,
        "unbudgeted_peak_bytes": peak_bytes,
        "rows": [row.to_dict() for row in rows],
        "optima": [found.to_dict() for found in optima],
    }
    try:
        if options.json is not None:
            write_atomically(options.json, json.dumps(result, indent=2) + "\n")
        if options.timeline is not None and isinstance(trace, Trace):
            moments = trace.timeline(budgets[0], policy=names[0], **_switches(options, names[0]))
            chrome = chrome_trace(moments, budgets[0])
            write_atomically(options.timeline, json.dumps(chrome) + "\n")
        if options.plot is not None:
            _plot(drawn, optima, peak_bytes, options)
    except OSError as error:
        options.fail(str(error))
    return 0


def _choose_preset(options: argparse.Namespace) -> list[str]:
    """Refuses what does not go with the preset, and returns the policies that do."""
    if options.max_time_ratio is None:
        options.max_time_ratio = 10.0 if options.preset is None else 2.0
    if options.preset is None:
        return [policy.name for policy in recoup.policies(simulated=True)]
    if not is_dtr_log(options.trace):
        options.fail(
            f"--preset dtr runs logs of the DTR authors (.log, .log.gz); got {options.trace}"
        )
    for name in _ENGINE_OPTIONS:
        if vars(options)[name] != options.default(name):
            options.fail(f"--preset dtr has no --{name.replace('_', '-')}: it is of our engine")
    return dtr_policies()


def _check_optimum(options: argparse.Namespace) -> None:
    if importlib.util.find_spec("scipy") is None:
        options.fail("--optimum needs SciPy: pip install 'recoup[optimum]'")
    if options.spill is not None:
        options.fail("--optimum knows of no second tier")
    if options.cost_model != "measured":
        options.fail("--optimum is of measured costs")
    if not options.time_limit > 0:
        options.fail(f"--time-limit must be above 0 s; got {options.time_limit}")


def _read(options: argparse.Namespace) -> Trace | DtrProgram:
    if options.preset:
        return DtrProgram.read(options.trace)
    trace = read_any_trace(options.trace)
    steps = trace.steps()
    if options.optimum and steps > 1:
        print(f"The last of {steps} steps:")
        return trace.step()
    return trace


def _switches(options: argparse.Namespace, policy: str) -> dict[str, Any]:
    if options.preset is not None:
        return {"max_time_ratio": options.max_time_ratio}
    search = {}
    if options.kinetic:
        has_order = any(row.name == policy and row.kinetic for row in recoup.policies())
        search = {"kinetic": has_order, "sampling": False}
    return {
        **search,
        "max_time_ratio": options.max_time_ratio,
        "layout": not options.no_layout,
        "cost_model": options.cost_model,
        "replay_order": options.replay_order,
        "usefulness": not options.eager_drop,
        "seed": options.seed,
        "oracle": tuple(options.oracle),
        "plan_ahead": options.plan_ahead,
        "noise": options.noise,
        "spill": options.spill,
        "spill_bandwidth": options.spill_bandwidth,
    }


def _noise(text: str) -> tuple[int, float]:
    seed, colon, percent = text.partition(":")
    try:
        noise = int(seed), float(percent)
    except ValueError:
        colon = ""
    if not colon or not 0 <= noise[0] < 2**64 or not 0 <= noise[1] <= 200:
        raise argparse.ArgumentTypeError(
            f"SEED:PERCENT is wanted, as 1:30, of at most 200; got {text!r}"
        )
    return noise


def _bandwidth(text: str) -> tuple[float, float]:
    try:
        read, write = map(float, text.split(","))
    except ValueError:
        read = write = 0.0
    if not (0 < read < math.inf and 0 < write < math.inf):
        raise argparse.ArgumentTypeError(f"READ,WRITE is wanted, in GB/s, as 3,1.5; got {text!r}")
    return read, write


def _run_all(
    trace: Trace | DtrProgram, names: list[str], budgets: list[int], options: argparse.Namespace
) -> list[Simulation]:
    def run(case: tuple[str, int]) -> Simulation:
        name, budget = case
        return trace.simulate(budget, policy=name, **_switches(options, name))

    cases = [(name, budget) for name in names for budget in budgets]
    with ThreadPoolExecutor(options.jobs) as pool:  # a simulation holds no interpreter lock
        return list(_tracked(pool.map(run, cases), len(cases), "simulating"))


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


def _optimum_cell(found: Optimum) -> str:
    if found.bound is None:
        return "-"
    if found.time_ratio is None:
        return f">= {found.bound:.4f}"
    if found.status == "optimal":
        return f"{found.time_ratio:.4f}"
    return f"{found.bound:.4f}..{found.time_ratio:.4f}"


def _print_table(
    rows: list[Simulation],
    optima: list[Optimum],
    names: list[str],
    budgets: list[int],
    peak_bytes: int,
    op_count: int,
) -> None:
    print(f"{op_count:,} ops, unbudgeted peak {peak_bytes:,} bytes. Time ratios:")
    table = Table()
    table.add_column("budget", justify="right")
    table.add_column("bytes", justify="right")
    for name in names:
        table.add_column(name, justify="right")
    if optima:
        table.add_column("optimum", justify="right")
    optimum_cells = {found.budget_bytes: [_optimum_cell(found)] for found in optima}
    by_case = {(row.policy, row.budget_bytes): row for row in rows}
    for budget in budgets:
        cells = [
            f"{row.time_ratio:.4f}" if row.status == "ok" else _MARKS[row.status]
            for row in (by_case[name, budget] for name in names)
        ]
        table.add_row(
            f"{100 * budget / peak_bytes:.4g} %",
            f"{budget:,}",
            *cells,
            *optimum_cells.get(budget, []),
        )
    # Figures are worth more than the width of a window.
    width = 40 + sum(max(12, len(name) + 3) for name in names) + 20 * bool(optima)
    Console(width=max(Console().width, width)).print(table)
    if any(row.status != "ok" for row in rows):
        print("-: out of budget; slow: over the bound of --max-time-ratio")
    if any(found.status == "feasible" for found in optima):
        print("A..B: B is reached, and no policy can be below A")


def _rows_to_draw(
    trace: Trace | DtrProgram,
    names: list[str],
    rows: list[Simulation],
    budgets: list[int],
    options: argparse.Namespace,
) -> list[Simulation]:
    """Every plot has the oracle beside what was asked for."""
    if options.plot is None or "oracle" in names or options.preset is not None:
        return rows
    return rows + _run_all(trace, ["oracle"], budgets, options)


def _plot(
    rows: list[Simulation],
    optima: list[Optimum],
    peak_bytes: int,
    options: argparse.Namespace,
) -> None:
    try:
        import matplotlib
    except ModuleNotFoundError:
        options.fail("--plot needs matplotlib: pip install matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    for name in dict.fromkeys(row.policy for row in rows):
        points = sorted(
            (100 * row.budget_bytes / peak_bytes, row.time_ratio)
            for row in rows
            if row.policy == name and row.status == "ok"
        )
        shares, ratios = ([point[i] for point in points] for i in (0, 1))
        style: dict[str, Any] = (
            {"color": "grey", "linestyle": "--"} if name == "oracle" else {"marker": "o"}
        )
        axes.plot(shares, ratios, markersize=2.5, linewidth=1, label=name, **style)
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
    axes.set_title(Path(options.trace).name, fontsize=10)
    axes.legend(fontsize=8)
    figure.tight_layout()
    picture = io.BytesIO()
    figure.savefig(picture, dpi=150, format=options.plot.suffix.lstrip(".") or "png")
    write_atomically(options.plot, picture.getvalue())
