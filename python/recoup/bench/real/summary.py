"""A net's runs in the form that tables, pages and pictures show."""

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from recoup.bench.nets.real import real_net_named
from recoup.bench.real.results import Plan, Results
from recoup.bench.real.runner import label, step_seconds
from recoup.bench.real.ways import DEFAULT, PLAIN, RECOUP


@dataclass(frozen=True)
class Line:
    """A case: medians over its runs."""

    row: dict[str, Any]
    """The case's row in the results."""
    peak_bytes: int | None
    """Maximum bytes of tensors at any time; None if they were not counted."""

    @property
    def label(self) -> str:
        return label(self.row)

    @property
    def way(self) -> str:
        return str(self.row["way"])

    @property
    def runs(self) -> list[dict[str, Any]]:
        """The runs; empty if the case failed in any round."""
        return list(self.row["runs"]) if self.row["status"] == "ok" else []

    @property
    def status(self) -> str:
        return "not run yet" if self.row["status"] == "ok" and not self.runs else self.row["status"]

    def median(self, name: str) -> float | None:
        """Median of a value over the runs; None if they do not have it."""
        values = [run[name] for run in self.runs if name in run]
        return statistics.median(values) if values else None

    def seconds(self, of: Callable[[list[float]], float] = statistics.median) -> float | None:
        """Time of a step in seconds; None without runs."""
        return of([step_seconds(run) for run in self.runs]) if self.runs else None

    def over(self, other: "Line") -> float | None:
        """The line's time divided by the other's."""
        seconds, base = self.seconds(), other.seconds()
        return seconds / base if seconds and base else None


@dataclass(frozen=True)
class Summary:
    """All cases of a net."""

    net: str
    what: str
    steps: int
    """Number of steps in a run."""
    peak_bytes: int
    """Maximum bytes of tensors in plain PyTorch."""
    lines: list[Line]

    @property
    def plain(self) -> Line:
        """Plain PyTorch on the default allocator."""
        return next(line for line in self.lines if line.way == DEFAULT.name)

    @property
    def fastest(self) -> Line:
        """The fastest of the plain ways, by which times are divided."""
        names = {way.name for way in PLAIN}
        lines = [line for line in self.lines if line.way in names and line.runs]
        return min(lines, key=lambda line: line.seconds() or 0.0)

    @property
    def pool(self) -> Line | None:
        """recoup in a budget of plain PyTorch's peak, if it was run."""
        for line in self.lines:
            if (line.way, line.row["fraction"]) == (RECOUP.name, 1.0) and line.runs:
                return line
        return None


def summaries(plan: Plan, results: Results) -> Iterator[Summary]:
    """The summaries of nets whose plain training has run."""
    for net in plan.nets:
        peaks = results.peaks.get(net, {})
        if DEFAULT.name not in peaks:
            continue
        lines = []
        for row in results.rows_of(plan, net):
            charged = [run["charged_bytes"] for run in row["runs"] if "charged_bytes" in run]
            lines.append(Line(row, max(charged, default=peaks.get(row["way"]))))
        steps = results.settings["steps"]
        yield Summary(net, real_net_named(net).what, steps, peaks[DEFAULT.name], lines)


def remarks(summary: Summary) -> list[str]:
    """Where a gain comes from, and which cases could not be measured."""
    fastest, plain, pool = summary.fastest, summary.plain, summary.pool
    said = []
    if pool is not None:
        said.append(
            f"In a budget of 100 %, recoup takes {pool.over(plain):.2f}x the time of plain "
            "PyTorch with its default allocator. The difference is due to its pool, which keeps "
            f"its pages: {pool.median('page_faults'):,.0f} page faults instead of "
            f"{plain.median('page_faults'):,.0f}. Compared with the fastest plain allocator, "
            f"{fastest.label}, it takes {pool.over(fastest):.2f}x the time."
        )
    said += [f"{line.label}: {_reason(line, summary)}." for line in summary.lines if not line.runs]
    if any(line.row["status"] == "not installed" for line in summary.lines):
        said.append("So the fastest plain allocator is the fastest of the installed ones.")
    return said


def _reason(line: Line, summary: Summary) -> str:
    """Why the case has no runs."""
    if least := line.row.get("least_bytes"):  # 0: no lower bound is known
        fraction = least / summary.peak_bytes
        return (
            f"{line.status}; below {least / 1e9:.2f} GB, {fraction:.0%}, every budget is too small"
        )
    return ": ".join(filter(None, (line.status, line.row["note"])))
