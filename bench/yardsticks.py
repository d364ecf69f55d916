"""Compares recoup with references: an optimum, a layout's bound, the DTR authors' simulator.

    OMP_NUM_THREADS=1 python bench/yardsticks.py optimum --fractions 0.8 0.7 0.6 0.5 0.3
    OMP_NUM_THREADS=1 python bench/yardsticks.py optimum --spill --nets wide cnn mlp
    python bench/yardsticks.py layouts
    python bench/yardsticks.py dtr --golden dtr-golden.csv --logs dtr-logs
    python bench/yardsticks.py dtr --preset --golden dtr-golden.csv dtr-golden-ablation.csv \\
        --logs dtr-logs

optimum  The distance of each policy from the optimum: one training step of small nets, where only
         bytes count. The step is the last of six that are recorded, or the last of a trace. Per
         policy: its time ratio over the best one known, which is that of the optimum's schedule if
         its status is optimal; `-` is out of budget. A policy below the optimum's bound would mean
         an error in one of them, and ends the program. The last row is the same step in a run of
         all steps under `planned`, with addresses. With --spill all may use a spill tier of
         0.8 GB/s each way, or of the given rate, and non-recomputable values go there too; there
         are no lists then, and the last row is `recoup` with addresses.

layouts  The distance of each static planner from the bound, and its time: the published instances
         of google/minimalloc and idealloc, in RECOUP_SHARED_DATA or in ../shared/data, and random
         tensors from a fixed seed. Every layout is checked pair by pair, outside of the measured
         time. `recoup layout FILE --planner all` does the same for a file.

dtr      A cell is a log, a policy and a fraction of the peak. The golden file has a status (ok,
         thrash, OOM) and a time ratio for each: all op time over that of one run. recoup's results
         are simulated with bytes alone, as the authors' are: no addresses, every candidate scored,
         constants charged. With --preset they come from the model of the authors' simulator, which
         must give the same status and the time ratio within 0.1 %; exits with 1 if a cell differs.
"""

import argparse
import math
import os
import random
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import measure
import torch
from measure import (
    PROGRAM_NAMES,
    Program,
    add_json,
    parser_of,
    program_named,
    program_of_net,
    say,
    write_result,
)
from torch import nn

import recoup
from dtr_logs import TOLERANCE as GOLDEN_TOLERANCE
from dtr_logs import GoldenCell, read_golden, simulate_golden
from recoup.bench.harness.tables import print_cells, print_rows
from recoup.bench.nets.net import Batch, Net, classified, images
from recoup.bench.nets.tiny_vision import ResNet
from recoup.offline import layout
from recoup.offline.graph import TierPrice
from recoup.offline.layout import Buffer
from recoup.offline.optimum import optimum
from recoup.offline.traces import Simulation

# --- optimum -------------------------------------------------------------------------------------
STEPS = 6  # the first makes the optimizer's state, and a plan needs two equal ones
TOLERANCE = 1e-4
# Names of rows for runs with addresses.
AT_ADDRESSES = "planned, at addresses"
TIER_AT_ADDRESSES = "recoup, at addresses"
DISK = 0.8  # GB/s each way; of a virtual disk
POLICIES = [each.name for each in recoup.policies(simulated=True) if each.name != "unbounded"]


def make_mlp() -> nn.Module:
    layers = [layer for _ in range(8) for layer in (nn.Linear(64, 64), nn.GELU())]
    return nn.Sequential(*layers, nn.Linear(64, 10))


def vectors_and_labels(count: int, width: int) -> Callable[[torch.Generator], Batch]:
    def batch(chance: torch.Generator) -> Batch:
        vectors = torch.randn(count, width, generator=chance)
        return vectors, torch.randint(0, 10, (count,), generator=chance)

    return batch


def make_wide() -> nn.Module:
    layers = [layer for _ in range(2) for layer in (nn.Linear(512, 512), nn.GELU())]
    return nn.Sequential(*layers, nn.Linear(512, 10))


# In addition to the nets of all benchmarks: small enough for an integer program.
SMALL = {
    net.name: net
    for net in (
        Net("mlp", make_mlp, vectors_and_labels(1024, 64), classified, ()),
        # Its parameters, gradients and optimizer state are most of its peak.
        Net("wide", make_wide, vectors_and_labels(256, 512), classified, ()),
        Net("cnn", lambda: ResNet(widths=(16,), blocks=2), images(32, 16), classified, ()),
    )
}


def program(name: str) -> Program:
    return program_of_net(SMALL[name]) if name in SMALL else program_named(name)


def recorded(name: str, steps: int = STEPS) -> recoup.Trace:
    with tempfile.TemporaryDirectory() as folder:
        return measure.recorded(program(name), steps, Path(folder) / "run.rtrace")


def traces_of(nets: list[str], paths: list[Path]) -> Iterator[tuple[str, recoup.Trace]]:
    for name in nets if not paths else []:
        yield name, recorded(name)
    for path in paths:
        yield path.name.partition(".")[0], recoup.Trace.read(path)


def last_step_ratio(trace: recoup.Trace, budget: int) -> float | None:
    """Time ratio of the last step of a run under `planned`; None: the run does not reach it."""
    moments = trace.timeline(budget, recoup.SimulationOptions(policy="planned", max_time_ratio=0))
    ends = [at for at, moment in enumerate(moments) if moment.kind == "step"]
    if len(ends) < trace.steps():
        return None
    start = ends[-2] if len(ends) > 1 else 0
    cost = {
        kind: sum(each.cost_ns for each in moments[start : ends[-1]] if each.kind == kind)
        for kind in ("op", "replay")
    }
    return 1 + cost["replay"] / cost["op"]


def ratios_of(trace: recoup.Trace, budget: int, spill: float | None) -> dict[str, float | None]:
    """Time ratios of the last step, by policy."""
    tier: dict[str, Any] = {}
    if spill is not None:
        tier = {"spill": "1TiB", "spill_bandwidth": (spill, spill)}
    step = trace.step()

    def ratio(policy: str, *, layout: bool = False) -> float | None:
        run = step.simulate(
            budget, recoup.SimulationOptions(policy=policy, layout=layout, max_time_ratio=0, **tier)
        )
        return run.time_ratio if run.status == "ok" else None

    ratios = {policy: ratio(policy) for policy in POLICIES}
    if spill is None:
        return ratios | {AT_ADDRESSES: last_step_ratio(trace, budget)}
    return ratios | {TIER_AT_ADDRESSES: ratio("recoup", layout=True)}


def optimum_row(
    name: str, trace: recoup.Trace, fraction: float, time_limit: float, spill: float | None
) -> dict[str, Any]:
    step = trace.step()
    budget = int(step.unbudgeted_peak_bytes() * fraction)
    price = None if spill is None else TierPrice(1 / spill, 1 / spill)
    found = optimum(step, budget, time_limit=time_limit, tier=price)
    ratios = ratios_of(trace, budget, spill)
    for row, ratio in ratios.items():
        if ratio is not None and (found.bound is None or ratio < found.bound - TOLERANCE):
            raise RuntimeError(f"{name} at {fraction:.0%}: {row} is below the bound: {found}")
    say(f"{name} at {fraction:.0%}: {found}")
    made = found.schedule
    copies = None if made is None else made.copy_cost_ns / max(1, made.cost_ns)
    row = {"net": name, "fraction": fraction, "spill_gb_per_s": spill, "copies": copies}
    return row | found.to_dict() | {"policies": ratios}


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def lines_of(rows: list[dict[str, Any]]) -> Iterator[list[str]]:
    """Lines with a column for each net and budget."""
    yield ["status", *(row["status"] for row in rows)]
    yield ["seconds", *(f"{row['seconds']:.1f}" for row in rows)]
    yield ["values", *(f"{row['values']} of {row['all_values']}" for row in rows)]
    yield ["schedule", *(number(row["time_ratio"]) for row in rows)]
    yield ["bound", *(number(row["bound"]) for row in rows)]
    if rows[0]["spill_gb_per_s"] is not None:
        yield ["of it copies", *(number(row["copies"]) for row in rows)]
    best = [best_of(row) for row in rows]
    yield ["best known", *map(number, best)]
    for policy in rows[0]["policies"]:
        pairs = [(row["policies"][policy], least) for row, least in zip(rows, best, strict=True)]
        yield [policy, *(number(None if None in pair else pair[0] / pair[1]) for pair in pairs)]


def best_of(row: dict[str, Any]) -> float | None:
    known = [row["time_ratio"], *row["policies"].values()]
    return min((ratio for ratio in known if ratio is not None), default=None)


def measure_optimum(args: argparse.Namespace) -> int:
    rows = [
        optimum_row(name, trace, fraction, args.time_limit, args.spill)
        for name, trace in traces_of(args.nets, args.traces)
        for fraction in args.fractions
    ]
    columns = [f"{row['net']} {row['fraction']:.0%}" for row in rows]
    print_cells("time ratio over the best known", ["", *columns], lines_of(rows))
    write_result(args.json, "optimum", rows)
    return 0


# --- layouts -------------------------------------------------------------------------------------
SHARED = Path(os.environ.get("RECOUP_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data"))
CAPACITIES = [("minimalloc", letter, 1_048_576) for letter in "ABCDEFGHIJK"]
CAPACITIES += [("minimalloc", "C", 1_039_360)]


def random_tensors(count: int, *, long: bool) -> list[Buffer]:
    """Sizes over six orders of magnitude, many equal; most lifetimes are short unless `long`."""
    draw = random.Random(1)
    buffers = []
    for i in range(count):
        lower = draw.randrange(count)
        width = 1 + (draw.randrange(count) if long else int(10 ** draw.uniform(0, 3.3)))
        size = 512 * (1 + int(10 ** draw.uniform(0, 6)) // 64)
        buffers.append(Buffer(f"t{i}", lower, lower + width, size))
    return buffers


def published(count: int) -> Iterator[tuple[str, list[Buffer]]]:
    for path in sorted((SHARED / "layouts").glob("*/*.csv")):
        yield f"{path.parent.name}/{path.name.partition('.')[0]}", layout.read_csv(path)
    if count:
        yield f"{count:,} random tensors", random_tensors(count, long=False)
        yield f"{count:,} long random tensors", random_tensors(count, long=True)


def layout_row(name: str, buffers: list[Buffer], planner: str, **options: Any) -> dict[str, Any]:
    result = layout.plan(buffers, planner=planner, check=True, **options)
    print(
        f"{name:28} {planner:15} {result.size_bytes:16,} "
        f"{result.size_bytes / result.bound_bytes:8.4f}x {result.seconds:8.2f} s"
        f"{'  optimal' if result.optimal else ''}",
        flush=True,
    )
    return {
        "problem": name,
        "buffers": len(buffers),
        "planner": planner,
        "size_bytes": result.size_bytes,
        "bound_bytes": result.bound_bytes,
        "optimal": result.optimal,
        "seconds": round(result.seconds, 3),
    }


def measure_layouts(args: argparse.Namespace) -> int:
    rows = []
    for name, buffers in published(args.random):
        for planner in layout.planners():
            limits: dict[str, Any] = {"alignment": args.alignment, "time_limit": args.time_limit}
            rows.append(layout_row(name, buffers, planner.name, **limits))
    for folder, letter, capacity in CAPACITIES:
        path = SHARED / "layouts" / folder / f"{letter}.1048576.csv"
        if path.is_file():
            name = f"{letter} into {capacity:,}"
            limits = {"capacity": capacity, "time_limit": 60.0}
            rows.append(layout_row(name, layout.read_csv(path), "search", **limits))
    write_result(args.json, "layouts", rows)
    return 0


# --- dtr -----------------------------------------------------------------------------------------
THRASH = 2.0  # the authors' bound


DTR_COLUMNS = {
    "log": "{log}",
    "policy": "{policy}",
    "fraction": "{fraction:g}",
    "golden": "{golden_status}",
    "its ratio": "{golden_time_ratio}",
    "ours": "{status}",
    "our ratio": "{time_ratio:.4f}",
    "ours / golden": "{over_golden:.4f}",
}


def measure_dtr(args: argparse.Namespace) -> int:
    cells = [cell for path in args.golden for cell in read_golden(path)]
    results = (simulate_golden if args.preset else simulate_ours)(cells, args.logs)
    rows = [dtr_row(cell, result) for cell, result in zip(cells, results, strict=True)]
    different = [
        row
        for row, cell, result in zip(rows, cells, results, strict=True)
        if cell.difference(result) > GOLDEN_TOLERANCE
    ]
    if shown := different if args.preset else rows:
        print_rows("ours over theirs", DTR_COLUMNS, shown, texts=2)
    if args.preset:
        worst = max(cell.difference(result) for cell, result in zip(cells, results, strict=True))
        print(
            f"{len(rows) - len(different)} of {len(rows)} cells equal: the status, and the time "
            f"ratio within {GOLDEN_TOLERANCE:.1%}; largest difference {worst:.2g}"
        )
    else:
        print_summary(rows)
    write_result(args.json, "dtr", rows)
    return 1 if args.preset and different else 0


def simulate_ours(cells: list[GoldenCell], logs: Path) -> list[Simulation]:
    traces: dict[str, recoup.Trace] = {}
    results = []
    for cell in cells:
        if cell.log not in traces:
            traces[cell.log] = recoup.read_dtr_log(logs / f"{cell.log}.log.gz")
        if cell.budget_bytes is None:
            raise SystemExit("the ablation's scores are those of --preset alone")
        results.append(
            traces[cell.log].simulate(
                cell.budget_bytes,
                recoup.SimulationOptions(
                    policy=cell.policy,
                    layout=False,
                    small_filter=False,
                    sampling=False,
                    small_result_bytes=0,
                    max_replay_ratio=0,
                ),
            )
        )
    return results


def dtr_row(cell: GoldenCell, result: Simulation) -> dict[str, Any]:
    ours = result.time_ratio if result.status == "ok" else None
    theirs = cell.time_ratio
    return {
        "log": cell.log,
        "policy": cell.policy,
        "fraction": cell.fraction,
        "golden_status": cell.status,
        "golden_time_ratio": theirs,
        "status": result.status,
        "time_ratio": ours,
        "over_golden": None if ours is None or theirs is None else ours / theirs,
    }


def print_summary(rows: list[dict[str, Any]]) -> None:
    both = [row["over_golden"] for row in rows if row["over_golden"] is not None]
    mean = statistics.geometric_mean(both)
    lost = [row for row in rows if row["golden_status"] == "ok" and row["time_ratio"] is None]
    won = [
        row
        for row in rows
        if row["golden_status"] != "ok" and (row["time_ratio"] or math.inf) <= THRASH
    ]
    print(
        f"{len(both)} cells that both run: geometric mean {mean:.4f}, worst {max(both):.4f}; "
        f"{len(lost)} that only theirs runs, {len(won)} that only ours runs within {THRASH:g}x"
    )


# --- all -----------------------------------------------------------------------------------------
def add_optimum(commands: Any) -> None:
    parser = commands.add_parser("optimum", help="policies compared with the optimum")
    parser.set_defaults(measure=measure_optimum)
    parser.add_argument(
        "--nets",
        nargs="+",
        default=["mlp", "cnn", "bilstm"],
        choices=[*SMALL, *PROGRAM_NAMES],
        metavar="NET",
    )
    parser.add_argument("--traces", nargs="+", type=Path, default=[], metavar="FILE")
    parser.add_argument("--fractions", nargs="+", type=float, default=[0.7, 0.5, 0.3])
    parser.add_argument("--time-limit", type=float, default=40.0, metavar="SECONDS")
    parser.add_argument(
        "--spill", type=float, nargs="?", const=DISK, metavar="GB/S", help="with a spill tier"
    )


def add_layouts(commands: Any) -> None:
    parser = commands.add_parser("layouts", help="planners compared with the bound")
    parser.set_defaults(measure=measure_layouts)
    parser.add_argument("--time-limit", type=float, default=10.0)
    parser.add_argument("--random", type=int, default=60_000)
    parser.add_argument("--alignment", type=int, default=1)


def add_dtr(commands: Any) -> None:
    parser = commands.add_parser("dtr", help="replays compared with those of DTR's simulator")
    parser.set_defaults(measure=measure_dtr)
    parser.add_argument("--golden", type=Path, nargs="+", required=True, metavar="CSV")
    parser.add_argument("--logs", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--preset", action="store_true", help="the model of their simulator")


def main() -> int:
    parser = parser_of(__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for add in (add_optimum, add_layouts, add_dtr):
        add(commands)
    add_json(*commands.choices.values())
    args = parser.parse_args()
    code: int = args.measure(args)
    return code


if __name__ == "__main__":
    sys.exit(main())
