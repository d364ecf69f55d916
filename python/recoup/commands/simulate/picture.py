"""The plot of `recoup simulate`: time ratios against budgets, and marks for failed runs."""

import io
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recoup._reporting.files import write_atomically
from recoup.offline.optimum import Optimum
from recoup.offline.traces import Simulation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Statuses of failed runs, which have no time ratio: marker, color, text of the legend.
_FAILURES = {
    "out of budget": ("x", "firebrick", "out of budget"),
    "too slow": ("^", "darkorange", "too slow (--max-time-ratio)"),
}
_LEGEND_LINES = 30  # per column
_DASHES = ("-", "--", ":")
# The axis ends at 1 + _FAR * e, where _MOST of all ratios have at most the excess e over 1.
_FAR = 4.0
_MOST = 0.75
_LEAST_EXCESS = 0.05


@dataclass(frozen=True)
class Row:
    """A run, and the header of its column: policy and spill tier."""

    column: str
    run: Simulation

    @property
    def label(self) -> str:
        """The column in one line."""
        return self.column.replace("\n", " ")


def draw_plot(
    rows: Sequence[Row], optima: Sequence[Optimum], peak_bytes: int, title: str, path: Path
) -> None:
    """Draws the plot to `path`. Raises OSError if `path` cannot be written.

    Raises ModuleNotFoundError without matplotlib, and ValueError with the allowed suffixes for a
    format that matplotlib cannot write.
    """
    figure = plot_figure(rows, optima, peak_bytes, title)
    kind = path.suffix.lstrip(".") or "png"
    allowed = figure.canvas.get_supported_filetypes()
    if kind not in allowed:
        raise ValueError(
            f"--plot must end in one of {', '.join(f'.{name}' for name in allowed)}; got {path}"
        )
    picture = io.BytesIO()
    figure.savefig(picture, dpi=150, format=kind, bbox_inches="tight")
    write_atomically(path, picture.getvalue())


def plot_figure(
    rows: Sequence[Row], optima: Sequence[Optimum], peak_bytes: int, title: str
) -> "Figure":
    """Draws one curve per column against budgets that fall to the right, and marks for failed runs.

    Failed runs are drawn above the curves, in one row per column, so that they do not hide each
    other. A ratio far above the others is drawn at the upper edge with its value: a longer or
    logarithmic axis would make the other ratios indistinguishable.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    failed = [row for row in rows if row.run.status != "ok"]
    failures: list[tuple[str, int, str]] = [
        (row.label, row.run.budget_bytes, row.run.status) for row in failed
    ]
    failures += [
        ("optimum", found.budget_bytes, "out of budget")
        for found in optima
        if found.status == "infeasible"
    ]
    names = list(dict.fromkeys(name for name, _, _ in failures))
    strip = 0.17 * len(names) + 0.2 if names else 0.0
    figure = Figure(figsize=(8, 4.5 + strip), layout="constrained")
    FigureCanvasAgg(figure)
    if names:
        above, axes = figure.subplots(2, 1, sharex=True, height_ratios=(strip, 4.5))
        _draw_failures(above, failures, names, peak_bytes)
        above.set_title(title, fontsize=10)
    else:
        axes = figure.subplots()
        axes.set_title(title, fontsize=10)
    _draw_lines(axes, rows, peak_bytes)
    _draw_optima(axes, optima, peak_bytes)
    _cut_off(axes)
    axes.axhline(1.0, color="grey", linewidth=0.8, linestyle=":")
    percents = [100 * row.run.budget_bytes / peak_bytes for row in rows]
    margin = max(0.04 * (max(percents) - min(percents)), 1.0)
    axes.set_xlim(max(percents) + margin, min(percents) - margin)
    axes.set_xlabel("budget, % of the unbudgeted peak")
    axes.set_ylabel("time ratio")
    lines = len({row.label for row in rows})
    figure.legend(loc="outside right upper", fontsize=8, ncols=1 + lines // _LEGEND_LINES)
    return figure


def _draw_lines(axes: "Axes", rows: Sequence[Row], peak_bytes: int) -> None:
    colors = itertools.cycle(f"C{number}" for number in range(10))
    for number, label in enumerate(dict.fromkeys(row.label for row in rows)):
        points = sorted(
            (100 * row.run.budget_bytes / peak_bytes, row.run.time_ratio)
            for row in rows
            if row.label == label and row.run.status == "ok"
        )
        style: dict[str, Any] = {
            "color": next(colors),
            "linestyle": _DASHES[number // 10 % len(_DASHES)],
            "marker": "o",
        }
        if label == "oracle":
            style = {"color": "grey", "linestyle": "--", "marker": "."}
        xs, ys = ([point[i] for point in points] for i in (0, 1))
        axes.plot(xs, ys, markersize=3, linewidth=1.2, label=label, **style)


def _draw_optima(axes: "Axes", optima: Sequence[Optimum], peak_bytes: int) -> None:
    shown = sorted(
        (100 * found.budget_bytes / peak_bytes, found.bound, found.time_ratio)
        for found in optima
        if found.bound is not None and found.time_ratio is not None
    )
    if shown:
        percents, bounds, ratios = ([point[i] for point in shown] for i in (0, 1, 2))
        axes.plot(percents, ratios, color="black", marker="o", markersize=3, label="optimum")
        axes.fill_between(percents, bounds, ratios, color="black", alpha=0.2, linewidth=0)


def _draw_failures(
    axes: "Axes", failures: list[tuple[str, int, str]], names: list[str], peak_bytes: int
) -> None:
    """Draws a row for each of `names`, the first at the top."""
    for status, (marker, color, text) in _FAILURES.items():
        points = [
            (100 * budget / peak_bytes, names.index(name))
            for name, budget, found in failures
            if found == status
        ]
        if points:
            xs, ys = ([point[i] for point in points] for i in (0, 1))
            axes.scatter(xs, ys, marker=marker, color=color, s=18, linewidths=1, label=text)
    axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(left=False, bottom=False, labelbottom=False)
    axes.grid(axis="y", linewidth=0.3)
    axes.spines[:].set_visible(False)


def _cut_off(axes: "Axes") -> None:
    """Ends the axis above most ratios; shows the values beyond at its edge."""
    points = [(line, x, y) for line in axes.get_lines() for x, y in _points(line)]
    if not points:
        return
    excesses = sorted(y - 1 for _, _, y in points)
    most = max(excesses[math.ceil(_MOST * (len(excesses) - 1))], _LEAST_EXCESS)
    if excesses[-1] <= _FAR * most:
        return
    top = 1 + _FAR * most
    low = min(1.0, min(y for _, _, y in points))
    axes.set_ylim(low - 0.05 * (top - low), top)
    beyond: dict[float, list[tuple[float, Any]]] = {}
    for line, x, y in points:
        if y > top:
            beyond.setdefault(x, []).append((y, line.get_color()))
    for x, cut in beyond.items():
        for number, (y, color) in enumerate(sorted(cut, key=lambda each: -each[0])):
            axes.annotate(
                f"{y:.2f}",
                (x, top),
                xytext=(3, -9 - 9 * number),
                textcoords="offset points",
                color=color,
                fontsize=7,
            )
            axes.plot([x], [top], marker="^", color=color, markersize=5, clip_on=False)
    axes.plot([], [], marker="^", color="black", linestyle="", label=f"above {top:.2f}: cut off")


def _points(line: Any) -> list[tuple[float, float]]:
    return list(zip(map(float, line.get_xdata()), map(float, line.get_ydata()), strict=True))
