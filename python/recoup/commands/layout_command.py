"""The command `recoup layout`: plans the layout of a file of lifetimes."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rich.table import Table

from recoup.files import write_atomically
from recoup.offline import layout
from recoup.offline.dtr_log import read_any_trace
from recoup.offline.in_place import base_name
from recoup.offline.layout import Buffer, Layout, Op
from recoup.offline.layout_picture import draw_layouts
from recoup.sizes import format_bytes, parse_bytes
from recoup.tables import plain_table, print_table

_ALL = "all"


class _Commands(Protocol):
    """What `add_subparsers` gives."""

    def add_parser(self, name: str, *, help: str) -> argparse.ArgumentParser: ...


def add_layout_command(commands: _Commands) -> None:
    """Adds `layout` to the commands of the command line."""
    names = [planner.name for planner in layout.planners()]
    parser = commands.add_parser("layout", help="plan addresses for known lifetimes")
    parser.add_argument(
        "file",
        metavar="FILE",
        help="a .csv of id,lower,upper,size with that header, a trace, or a log of the DTR authors",
    )
    parser.add_argument(
        "--planner",
        default="search",
        choices=[*names, _ALL],
        metavar="NAME",
        help=f"{', '.join(names)}, or all: one row each (default: search)",
    )
    parser.add_argument("--capacity", metavar="BYTES", help="what it must fit in; 4GiB works too")
    parser.add_argument(
        "--alignment",
        default="1",
        metavar="N",
        help="of all addresses, a power of two (default: 1)",
    )
    parser.add_argument(
        "--time-limit", type=float, default=10.0, metavar="S", help="for search (default: 10)"
    )
    parser.add_argument(
        "--no-in-place",
        action="store_true",
        help="of a trace: no op writes its output over an input that dies there",
    )
    parser.add_argument(
        "--disable-inplace-ops",
        nargs="+",
        default=[],
        metavar="NAME",
        help="of a trace: ops that do not, such as relu or aten::add.Tensor",
    )
    parser.add_argument("--dump", action="store_true", help="print where each tensor lies")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw addresses over time")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the layout to this file")
    parser.set_defaults(command=_run, fail=parser.error)


@dataclass(frozen=True)
class _Problem:
    buffers: list[Buffer]
    ops: list[Op]


def _run(options: argparse.Namespace) -> int:
    fail: Callable[[str], None] = options.fail
    _refuse_nonsense(options)
    try:
        problem = _read(options)
        rows = _plan_all(problem, options)
    except (OSError, ValueError) as error:
        # A layout that does not fit is no misuse, but it ends as one: one line, not 0, no file.
        fail(_text(error))
        raise
    placed = [row for row in rows if row.offsets]
    if options.dump:
        for row in placed:
            _print_dump(row)
    print_table(_planner_table(rows))
    if not _any_fits(rows, options):
        return 2
    try:
        if options.json is not None:
            write_atomically(options.json, json.dumps(_as_json(rows[0], options), indent=2) + "\n")
        if options.plot is not None:
            write_atomically(options.plot, draw_layouts(placed, Path(options.file).name))
    except OSError as error:
        print(f"recoup layout: cannot write: {_text(error)}", file=sys.stderr)
        return 1
    return 0


def _read(options: argparse.Namespace) -> _Problem:
    disabled: list[str] = options.disable_inplace_ops
    if options.file.endswith(".csv"):
        if disabled:
            raise ValueError("--disable-inplace-ops needs a trace: a .csv has no ops")
        return _Problem(layout.read_csv(options.file), [])
    trace = read_any_trace(options.file)
    ops = [] if options.no_in_place else trace.layout_ops()
    known = {op.name for op in ops} | {base_name(op.name) for op in ops}
    for name in disabled:
        if name not in known:
            raise ValueError(f"--disable-inplace-ops: there is no op {name!r} in {options.file}")
    return _Problem(trace.buffers(), ops)


def _refuse_nonsense(options: argparse.Namespace) -> None:
    for name, path in (("--json", options.json), ("--plot", options.plot)):
        if path is not None and not path.absolute().parent.is_dir():
            options.fail(f"no such directory for {name}: {path.absolute().parent}")
    wants_addresses = options.dump or options.plot is not None
    if wants_addresses and options.planner != _ALL and not _places(options.planner):
        options.fail(f"--dump and --plot need addresses, and {options.planner} gives none")
    if options.no_in_place and options.disable_inplace_ops:
        options.fail("--no-in-place leaves nothing for --disable-inplace-ops")
    if options.json is not None and options.planner == _ALL:
        options.fail("--json needs one planner, not all")
    if options.plot is not None:
        if options.plot.suffix != ".png":
            options.fail(f"--plot draws a .png; got {options.plot}")
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            options.fail("--plot needs matplotlib: pip install matplotlib")


def _places(name: str) -> bool:
    return any(planner.places for planner in layout.planners() if planner.name == name)


def _text(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _plan(
    problem: _Problem, planner: str, options: argparse.Namespace, *, fits: bool = True
) -> Layout:
    disabled = set(options.disable_inplace_ops)
    names = {op.name for op in problem.ops}
    return layout.plan(
        problem.buffers,
        planner=planner,
        capacity=options.capacity if fits else None,
        alignment=options.alignment,
        time_limit=options.time_limit,
        ops=problem.ops,
        disable_inplace_ops=sorted(n for n in names if {n, base_name(n)} & disabled),
        check=True,
    )


def _plan_all(problem: _Problem, options: argparse.Namespace) -> list[Layout]:
    """The layout of the planner, or of each. One of several need not fit in the capacity."""
    if options.planner != _ALL:
        return [_plan(problem, options.planner, options)]
    rows = []
    for planner in layout.planners():
        try:
            rows.append(_plan(problem, planner.name, options))
        except ValueError:
            if options.capacity is None:
                raise
            rows.append(_plan(problem, planner.name, options, fits=False))
    return rows


def _any_fits(rows: Sequence[Layout], options: argparse.Namespace) -> bool:
    """Says so when no layout fits in the capacity."""
    placed = [row for row in rows if row.offsets]
    if options.capacity is None or not placed:
        return True
    capacity = parse_bytes(options.capacity, name="capacity")
    least = min(placed, key=lambda row: row.size_bytes)
    if least.size_bytes <= capacity:
        return True
    print(
        f"recoup layout: error: none fits in a capacity of {options.capacity}; "
        f"{least.planner} would in {least.size_bytes}",
        file=sys.stderr,
    )
    return False


def _planner_table(rows: list[Layout]) -> Table:
    table = plain_table("planner", "bytes", "size", "over bound", "seconds", "proved")
    for row in rows:
        over = row.size_bytes / row.bound_bytes if row.bound_bytes else 1.0
        table.add_row(
            row.planner,
            f"{row.size_bytes:,}",
            format_bytes(row.size_bytes),
            f"{over:.4f}x",
            f"{row.seconds:.3f}",
            "optimal" if row.optimal else "",
        )
    return table


def _print_dump(result: Layout) -> None:
    """A line a tensor. Plain text: rich takes half a minute for 60,000 rows."""
    print(f"{result.planner}:")
    rows = [("tensor", "size", "start", "end", "address", "place")]
    notes = _notes(result)
    for i, buffer in enumerate(result.buffers):
        numbers = (buffer.size_bytes, buffer.lower, buffer.upper, result.offsets[i])
        size, start, end, address = (f"{number:,}" for number in numbers)
        rows.append((buffer.name, size, start, end, address, notes[i]))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *numbers_text, note in rows:
        cells = [name.ljust(widths[0])]
        cells += [t.rjust(width) for t, width in zip(numbers_text, widths[1:], strict=False)]
        print("   ".join([*cells, note]).rstrip())
    print()


def _notes(result: Layout) -> list[str]:
    """'in place of X', 'reused' where somebody else had one of the bytes before, or nothing."""
    notes = ["" for _ in result.buffers]
    # What was at each address last: disjoint ranges in the order of addresses.
    used: list[tuple[int, int]] = []
    for i in sorted(range(len(result.buffers)), key=lambda k: result.buffers[k].lower):
        of = result.in_place[i]
        begin = result.offsets[i]
        end = begin + result.buffers[i].size_bytes
        touched = [span for span in used if span[0] < end and begin < span[1]]
        if of is not None:
            notes[i] = f"in place of {result.buffers[of].name}"
        elif touched:
            notes[i] = "reused"
        apart = [span for span in used if span[1] < begin or end < span[0]]
        joined = [span for span in used if not (span[1] < begin or end < span[0])]
        low = min([begin, *(span[0] for span in joined)])
        high = max([end, *(span[1] for span in joined)])
        used = [*apart, (low, high)]
    return notes


def _as_json(result: Layout, options: argparse.Namespace) -> dict[str, Any]:
    return {
        "file": str(options.file),
        "planner": result.planner,
        "size_bytes": result.size_bytes,
        "bound_bytes": result.bound_bytes,
        "least_bytes": result.least_bytes,
        "sum_bytes": result.sum_bytes,
        "optimal": result.optimal,
        "buffers": [
            {
                "id": buffer.name,
                "lower": buffer.lower,
                "upper": buffer.upper,
                "size_bytes": buffer.size_bytes,
                "offset_bytes": result.offsets[i] if result.offsets else None,
                "in_place_of": None if of is None else result.buffers[of].name,
            }
            for i, (buffer, of) in enumerate(zip(result.buffers, result.in_place, strict=True))
        ],
    }
