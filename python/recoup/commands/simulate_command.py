"""`recoup simulate`: a trace under policies and budgets, as a table, JSON and a plot."""

import argparse
import importlib.util
import itertools
import json
import math
import os
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import track

import recoup
from recoup.commands.simulate_output import print_table
from recoup.commands.simulate_picture import Row, draw_plot
from recoup.files import write_atomically
from recoup.moments import chrome_json
from recoup.offline.dtr_log import add_trace_argument, is_dtr_log, read_any_trace
from recoup.offline.dtr_simulator import DtrProgram, dtr_policies
from recoup.offline.optimum import Optimum, optimum
from recoup.offline.traces import Trace
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
    "spill_latency",
)
_MOST_PERCENT = 1_000_000


@dataclass(frozen=True)
class _Case:
    """What one column of the table is: a policy and a second tier, or none."""

    policy: str
    spill: str | None = None
    bandwidth: tuple[float, float] | None = None

    @property
    def column(self) -> str:
        if self.spill is None:
            return self.policy
        speed = "" if self.bandwidth is None else " {:g},{:g} GB/s".format(*self.bandwidth)
        return f"{self.policy}\n+ {self.spill}{speed}"

    def to_dict(self) -> dict[str, Any]:
        return {"spill": self.spill, "spill_bandwidth": self.bandwidth}


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
        nargs="+",
        metavar="SIZE",
        help="with a second tier of so many bytes; of several there is a column each (none: "
        "without one)",
    )
    parser.add_argument(
        "--spill-bandwidth",
        type=_bandwidth,
        nargs="+",
        metavar="READ,WRITE",
        help="of that tier, in GB/s; of several there is a column each (default: 0.8,0.8)",
    )
    parser.add_argument(
        "--spill-latency",
        type=float,
        metavar="US",
        help="what each copy takes beside its bytes, in microseconds (default: 100)",
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
    cases = _cases(names, options)
    if options.optimum:
        _check_optimum(options)
    try:
        trace = _read(options)
        peak_bytes = trace.unbudgeted_peak_bytes()
        if peak_bytes == 0:
            raise ValueError(f"{options.trace}: it never holds a byte: there is nothing to budget")
        budgets = parse_budgets(options.budgets, peak_bytes)
        if options.timeline is not None and len(cases) * len(budgets) != 1:
            raise ValueError(
                "--timeline is of one policy and one budget, with one second tier at most"
            )
        rows = _run_all(trace, cases, budgets, options)
        if all(row.run.status == "out of budget" for row in rows):
            largest = max((row.run for row in rows), key=lambda run: run.budget_bytes)
            raise ValueError(f"no budget is enough; under {largest.policy}: {largest.reason}")
        optima = _search_all(trace, budgets, options) if isinstance(trace, Trace) else []
        drawn = _rows_to_draw(trace, cases, rows, budgets, options)
    except (OSError, ValueError) as error:
        options.fail(str(error))
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
            switches = _switches(options, cases[0])
            moments = trace.timeline(budgets[0], policy=names[0], **switches)
            write_atomically(options.timeline, chrome_json(moments, budgets[0]))
        if options.plot is not None:
            draw_plot(drawn, optima, peak_bytes, Path(options.trace).name, options.plot)
    except ModuleNotFoundError:
        options.fail("--plot needs matplotlib: pip install matplotlib")
    except (OSError, ValueError) as error:
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


def _cases(names: list[str], options: argparse.Namespace) -> list[_Case]:
    """A column each."""
    if options.spill is None:
        for name in ("spill_bandwidth", "spill_latency"):
            if vars(options)[name] is not None:
                flag = name.replace("_", "-")
                options.fail(f"--{flag} is of a second tier: --spill SIZE")
        return [_Case(name) for name in names]
    if options.spill_latency is not None and not 0 <= options.spill_latency <= 1e9:
        options.fail(f"--spill-latency must be from 0 to 1e9 us; got {options.spill_latency}")
    cases = []
    for name, spill in itertools.product(names, options.spill):
        if spill == "none":
            cases.append(_Case(name))
        else:
            cases += [_Case(name, spill, speed) for speed in options.spill_bandwidth or [None]]
    return list(dict.fromkeys(cases))


def _switches(options: argparse.Namespace, case: _Case) -> dict[str, Any]:
    if options.preset is not None:
        return {"max_time_ratio": options.max_time_ratio}
    search = {}
    if options.kinetic:
        has_order = any(row.name == case.policy and row.kinetic for row in recoup.policies())
        search = {"kinetic": has_order, "sampling": False}
    latency = options.spill_latency
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
        "spill": case.spill,
        "spill_bandwidth": case.bandwidth,
        "spill_request_ns": None if latency is None else round(1000 * latency),
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
    trace: Trace | DtrProgram, cases: list[_Case], budgets: list[int], options: argparse.Namespace
) -> list[Row]:
    """Of each case, in the order of the budgets."""

    def run(cell: tuple[_Case, int]) -> Row:
        case, budget = cell
        switches = _switches(options, case)
        return Row(case.column, trace.simulate(budget, policy=case.policy, **switches))

    cells = list(itertools.product(cases, budgets))
    with ThreadPoolExecutor(options.jobs) as pool:  # a simulation holds no interpreter lock
        return list(_tracked(pool.map(run, cells), len(cells), "simulating"))


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
    cases: list[_Case],
    rows: list[Row],
    budgets: list[int],
    options: argparse.Namespace,
) -> list[Row]:
    """Every plot has the oracle beside what was asked for."""
    oracle = _Case("oracle")
    if options.plot is None or oracle in cases or options.preset is not None:
        return rows
    return rows + _run_all(trace, [oracle], budgets, options)
