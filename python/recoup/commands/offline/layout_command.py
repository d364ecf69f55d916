"""The command `recoup layout`: plans addresses for the buffers of a file."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from recoup._memory.sizes import format_bytes, parse_bytes
from recoup._reporting.files import write_atomically
from recoup._reporting.tables import plain_table, print_table
from recoup.commands.exit_codes import NOT_WRITTEN, USAGE_ERROR
from recoup.commands.offline.layout_arguments import ALL
from recoup.offline import layout
from recoup.offline.dtr_log import read_any_trace
from recoup.offline.in_place import base_name
from recoup.offline.layout import Buffer, Layout, Op
from recoup.offline.layout_picture import draw_layouts


@dataclass(frozen=True)
class _Problem:
    buffers: list[Buffer]
    ops: list[Op]


def run(options: argparse.Namespace) -> int:
    """Prints the layouts and writes the files. Returns the exit code."""
    fail: Callable[[str], None] = options.fail
    try:
        problem = _read(options)
        rows = _plan_all(problem, options)
    except (OSError, ValueError) as error:
        # Also for a layout that does not fit: one line on stderr, no file.
        fail(_text(error))
        raise
    placed = [row for row in rows if row.offsets]
    if options.dump:
        for row in placed:
            _print_dump(row)
    print_table(_planner_table(rows))
    if not _any_fits(rows, options):
        return USAGE_ERROR
    try:
        if options.json is not None:
            write_atomically(options.json, json.dumps(_as_json(rows[0], options), indent=2) + "\n")
        if options.plot is not None:
            write_atomically(options.plot, draw_layouts(placed, Path(options.file).name))
    except OSError as error:
        print(f"recoup layout: cannot write: {_text(error)}", file=sys.stderr)
        return NOT_WRITTEN
    return 0


def _read(options: argparse.Namespace) -> _Problem:
    disabled: list[str] = options.disable_inplace_ops
    if options.file.endswith(".csv"):
        return _Problem(layout.read_csv(options.file), [])
    trace = read_any_trace(options.file)
    ops = [] if options.no_in_place else trace.layout_ops()
    known = {op.name for op in ops} | {base_name(op.name) for op in ops}
    for name in disabled:
        if name not in known:
            raise ValueError(f"--disable-inplace-ops: {options.file} has no op {name!r}")
    return _Problem(trace.buffers(), ops)


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
    """The layouts of the chosen planners. Of several, each may exceed the capacity."""
    if options.planner != ALL:
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
    """Whether a layout fits in the capacity; if none does, prints an error."""
    placed = [row for row in rows if row.offsets]
    if options.capacity is None or not placed:
        return True
    capacity = parse_bytes(options.capacity, name="capacity")
    least = min(placed, key=lambda row: row.size_bytes)
    if least.size_bytes <= capacity:
        return True
    print(
        f"recoup layout: error: no layout fits in a capacity of {options.capacity}; that of "
        f"{least.planner} needs {least.size_bytes} bytes",
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
    """Prints one line per tensor. Plain text: rich takes half a minute for 60,000 rows."""
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
    """For each buffer 'in place of X', 'reused' if an earlier buffer had its bytes, or ''."""
    notes = ["" for _ in result.buffers]
    # Disjoint address ranges that earlier buffers used.
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
