"""How far each policy is from the optimum: one training step of small nets, bytes alone counting.

    OMP_NUM_THREADS=1 python bench/optimum.py --shares 0.7 0.5 0.3 --time-limit 40
    python bench/optimum.py --nets resnet unet
    python bench/optimum.py --traces run.rtrace

The step is the last of three that are recorded, or the last of a trace. Under each policy: its time
ratio over the best one known, which is that of the optimum's schedule where its status is optimal;
`-` is out of budget. A policy below the optimum's bound would be an error in one of them, and ends
this.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from measure import (
    PROGRAM_NAMES,
    Program,
    parser_of,
    print_table,
    program_named,
    program_of_net,
    say,
    write_result,
)
from torch import nn

import recoup
from recoup.bench.nets.net import Batch, Net, classified, images
from recoup.bench.nets.tiny_vision import ResNet
from recoup.offline.optimum import optimum

STEPS = 3
TOLERANCE = 1e-4
# All that stay in the budget.
POLICIES = [each.name for each in recoup.policies(simulated=True) if each.name != "unbounded"]


def make_mlp() -> nn.Module:
    layers = [layer for _ in range(8) for layer in (nn.Linear(64, 64), nn.GELU())]
    return nn.Sequential(*layers, nn.Linear(64, 10))


def vectors_and_labels(chance: torch.Generator) -> Batch:
    vectors = torch.randn(1024, 64, generator=chance)
    return vectors, torch.randint(0, 10, (1024,), generator=chance)


# Beside those that all benchmarks share: small enough for an integer program.
SMALL = {
    net.name: net
    for net in (
        Net("mlp", make_mlp, vectors_and_labels, classified, ()),
        Net("cnn", lambda: ResNet(widths=(16,), blocks=2), images(32, 16), classified, ()),
    )
}


def program(name: str) -> Program:
    return program_of_net(SMALL[name]) if name in SMALL else program_named(name)


def recorded(name: str) -> recoup.Trace:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.rtrace"
        with recoup.trace(path):
            program(name).train(STEPS)
        return recoup.Trace.read(path)


def steps_of(nets: list[str], traces: list[Path]) -> Iterator[tuple[str, recoup.Trace]]:
    for name in nets if not traces else []:
        yield name, recorded(name).step()
    for path in traces:
        yield path.name.partition(".")[0], recoup.Trace.read(path).step()


def row_of(name: str, step: recoup.Trace, share: float, time_limit: float) -> dict[str, Any]:
    budget = int(step.unbudgeted_peak_bytes() * share)
    found = optimum(step, budget, time_limit=time_limit)
    ratios: dict[str, float | None] = {}
    for policy in POLICIES:
        run = step.simulate(budget, policy=policy, layout=False, max_time_ratio=0)
        ratios[policy] = run.time_ratio if run.status == "ok" else None
        if run.status == "ok" and (found.bound is None or run.time_ratio < found.bound - TOLERANCE):
            raise RuntimeError(f"{name} at {share:.0%}: {policy} is below the bound: {found}")
    say(f"{name} at {share:.0%}: {found}")
    return {"net": name, "share": share, **found.to_dict(), "policies": ratios}


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def lines_of(rows: list[dict[str, Any]]) -> Iterator[list[str]]:
    """A column for each net and budget."""
    yield ["status", *(row["status"] for row in rows)]
    yield ["seconds", *(f"{row['seconds']:.1f}" for row in rows)]
    yield ["values", *(f"{row['values']} of {row['all_values']}" for row in rows)]
    yield ["schedule", *(number(row["time_ratio"]) for row in rows)]
    yield ["bound", *(number(row["bound"]) for row in rows)]
    best = [best_of(row) for row in rows]
    yield ["best known", *map(number, best)]
    for policy in POLICIES:
        pairs = [(row["policies"][policy], least) for row, least in zip(rows, best, strict=True)]
        yield [policy, *(number(None if None in pair else pair[0] / pair[1]) for pair in pairs)]


def best_of(row: dict[str, Any]) -> float | None:
    known = [row["time_ratio"], *row["policies"].values()]
    return min((ratio for ratio in known if ratio is not None), default=None)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument(
        "--nets",
        nargs="+",
        default=[*SMALL, "bilstm"],
        choices=[*SMALL, *PROGRAM_NAMES],
        metavar="NET",
    )
    parser.add_argument("--traces", nargs="+", type=Path, default=[], metavar="FILE")
    parser.add_argument("--shares", nargs="+", type=float, default=[0.7, 0.5, 0.3])
    parser.add_argument("--time-limit", type=float, default=40.0, metavar="SECONDS")
    args = parser.parse_args()
    rows = [
        row_of(name, step, share, args.time_limit)
        for name, step in steps_of(args.nets, args.traces)
        for share in args.shares
    ]
    columns = [f"{row['net']} {row['share']:.0%}" for row in rows]
    print_table("time ratio over the best known", ["", *columns], lines_of(rows))
    write_result(args.out, "optimum", rows)


if __name__ == "__main__":
    main()
