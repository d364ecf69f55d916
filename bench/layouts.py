"""How close each static planner comes to the bound, and how long it takes.

python bench/layouts.py [--time-limit S] [--random N] [--alignment N] [--no-in-place]
    [--json FILE] [FILE ...]

Each FILE is what `recoup layout` takes: a .csv, a trace, or a log of the DTR authors. Without one,
the instances are the published ones of google/minimalloc and idealloc, in RECOUP_SHARED_DATA or in
../shared/data, and random tensors from a fixed seed. Every layout is checked pair by pair, which
does not count in the seconds.
"""

import argparse
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from recoup.offline import layout
from recoup.offline.dtr_log import read_any_trace
from recoup.offline.layout import Buffer, Op

SHARED = Path(os.environ.get("RECOUP_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data"))
CAPACITIES = [("minimalloc", letter, 1_048_576) for letter in "ABCDE"]
CAPACITIES += [("minimalloc", "C", 1_039_360)]


def random_tensors(count: int, *, long: bool) -> list[Buffer]:
    """Sizes over six decimal orders, many of them equal; most lives are short unless `long`."""
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


def read(path: Path) -> tuple[list[Buffer], list[Op]]:
    if path.suffix == ".csv":
        return layout.read_csv(path), []
    trace = read_any_trace(str(path))
    return trace.buffers(), trace.layout_ops()


def row(name: str, buffers: list[Buffer], planner: str, **options: Any) -> dict[str, Any]:
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


def rows_of_files(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for path in args.files:
        buffers, ops = read(path)
        name = path.name.partition(".")[0]
        for planner in layout.planners():
            yield row(
                name,
                buffers,
                planner.name,
                ops=[] if args.no_in_place else ops,
                alignment=args.alignment,
                time_limit=args.time_limit,
            )


def rows_of_published(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for name, buffers in published(args.random):
        for planner in layout.planners():
            yield row(
                name,
                buffers,
                planner.name,
                alignment=args.alignment,
                time_limit=args.time_limit,
            )
    for folder, letter, capacity in CAPACITIES:
        path = SHARED / "layouts" / folder / f"{letter}.1048576.csv"
        if path.is_file():
            name = f"{letter} into {capacity:,}"
            limits = {"capacity": capacity, "time_limit": 60.0}
            yield row(name, layout.read_csv(path), "search", **limits)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--time-limit", type=float, default=10.0)
    parser.add_argument("--random", type=int, default=60_000)
    parser.add_argument("--alignment", type=int, default=1)
    parser.add_argument("--no-in-place", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = list(rows_of_files(args) if args.files else rows_of_published(args))
    if args.json is not None:
        args.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
