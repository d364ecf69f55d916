"""`recoup compare`: prints what differs in two reports of `recoup run`."""

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from recoup._memory.sizes import format_bytes
from recoup._reporting.report import NO_MODULE, format_ns
from recoup._reporting.tables import plain_table, print_table
from recoup.page.shape import REPORT, check
from recoup.stats import ADDED_NS

Report = Mapping[str, Any]
# Some reports lack those after the first.
_UNUSED = ("step", "suggestions", "budget_changes", "shared_budget")
_SHAPE = {name: shape for name, shape in REPORT.items() if name not in _UNUSED}
# Copies are shown if one of the runs has any.
_FIGURES: dict[str, str] = {
    "peak_bytes": "peak",
    "op_count": "ops",
    "replays": "replays",
    "evictions": "evictions",
    "evicted_bytes": "evicted",
    "moved_bytes": "moved",
    "spilled_bytes": "written to the tier",
    "fetched_bytes": "read from the tier",
    "op_ns": "time in ops",
    "replay_ns": "time in replays",
}


def run(options: argparse.Namespace) -> int:
    """Prints the tables. Returns 0."""
    reports = []
    for file in (options.first, options.second):
        try:
            reports.append(read_report(Path(file)))
        except (OSError, ValueError) as error:
            options.fail(str(error))
    first, second = reports
    if rows := list(_settings(first, second)):
        table = plain_table("differs", "A", "B", texts=3)
        for row in rows:
            table.add_row(*row)
        print_table(table)
        print()
    print_table(_figures(first, second))
    if options.modules and (table := _modules(first, second, options.modules)).row_count:
        print()
        print_table(table)
    return 0


def read_report(file: Path) -> Report:
    """A JSON report. Raises OSError, or ValueError if it is none."""
    try:
        report: Report = json.loads(file.read_text(encoding="utf-8"))
        check(report, _SHAPE)
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(
            f"{file} is not a report of `recoup run --report FILE.json`: {error}"
        ) from None
    return report


def _settings(first: Report, second: Report) -> Iterator[tuple[str, str, str]]:
    """What was run, and its settings and versions, where they differ."""
    for what in ("title", "device"):
        if first[what] != second[what]:
            yield what, first[what], second[what]
    for group in ("settings", "versions"):
        for name in dict.fromkeys([*first[group], *second[group]]):
            pair = [report[group].get(name, "-") for report in (first, second)]
            if pair[0] != pair[1]:
                shown = [_size(each) if name == "budget" else str(each) for each in pair]
                yield name, shown[0], shown[1]


def _size(value: object) -> str:
    return format_bytes(value) if isinstance(value, int) else str(value)


def _counters(report: Report) -> dict[str, int]:
    return {name: count for group in report["stats"].values() for name, count in group.items()}


def _figures(first: Report, second: Report) -> Table:
    table = plain_table("run", "A", "B", "change")
    _add(table, "time", first["wall_ns"], second["wall_ns"], format_ns)
    counts = [_counters(report) for report in (first, second)]
    for name, shown in _FIGURES.items():
        a, b = (each.get(name, 0) for each in counts)
        if a or b:
            _add(table, shown, a, b, _format_of(name))
    a, b = (sum(each.get(name, 0) for name in ADDED_NS) for each in counts)
    _add(table, "time added by the budget", a, b, format_ns)
    table.caption = "; ".join(
        f"{what} ended with {report['failures'][0]['type']}"
        for what, report in (("A", first), ("B", second))
        if report["failures"]
    )
    return table


def _format_of(name: str) -> Callable[[int], str]:
    if name.endswith("_bytes"):
        return format_bytes
    return format_ns if name.endswith("_ns") else "{:,}".format


def _add(table: Table, name: str, a: int, b: int, show: Callable[[int], str]) -> None:
    table.add_row(name, show(a), show(b), _change(a, b))


def _change(a: int, b: int) -> str:
    if a == b:
        return "="
    return f"{100 * (b - a) / a:+.1f} %" if a else "new"


def _modules(first: Report, second: Report, most: int) -> Table:
    """The modules whose time or memory at the peak differs most."""
    times, sizes = ([each(report) for report in (first, second)] for each in (_times, _at_peak))
    names = {*times[0], *times[1], *sizes[0], *sizes[1]}
    whole_ns = max(sum(times[0].values()), sum(times[1].values()), 1)
    whole_bytes = max(sum(sizes[0].values()), sum(sizes[1].values()), 1)

    def weight(name: str) -> float:
        """The larger of both differences, as parts of the whole."""
        return max(
            abs(times[1][name] - times[0][name]) / whole_ns,
            abs(sizes[1][name] - sizes[0][name]) / whole_bytes,
        )

    columns = ("module", "time A", "time B", "change", "at the peak A", "B", "change")
    table = plain_table(*columns)
    for name in sorted(names, key=lambda name: (-weight(name), name))[:most]:
        if weight(name) > 0:
            (a, b), (c, d) = ([each[name] for each in pair] for pair in (times, sizes))
            table.add_row(
                name or NO_MODULE,
                *(format_ns(a), format_ns(b), _change(a, b)),
                *(format_bytes(c), format_bytes(d), _change(c, d)),
            )
    return table


def _times(report: Report) -> dict[str, int]:
    """Time in the ops and replays of each module, in nanoseconds."""
    times: defaultdict[str, int] = defaultdict(int)
    for row in report["modules"]:
        times[row["module"]] += row["op_ns"] + row["replay_ns"]
    return times


def _at_peak(report: Report) -> dict[str, int]:
    """Bytes of each module at the peak."""
    sizes: defaultdict[str, int] = defaultdict(int)
    for row in report["peak"]["rows"]:
        sizes[row["module"]] += row["bytes"]
    return sizes
