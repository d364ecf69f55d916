"""The papers' plots, and times with their spread: one panel per net, one line per policy."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recoup.bench.harness import pictures
from recoup.bench.runner import Plan, Results


@dataclass(frozen=True)
class Plot:
    label: str
    value: Callable[[dict[str, Any]], float | None]
    """The value of a case that ran."""
    without: Callable[[dict[str, Any]], float | None] | None = None
    """The same value without addresses; None: not drawn."""
    each: Callable[[dict[str, Any]], list[float]] | None = None
    """The value of each round: the band covers their range."""
    most: float | None = None
    """Upper limit of the axis."""


PLOTS = {
    "time": Plot(
        "time of a step, plain = 1",
        lambda row: row["time_ratio"],
        each=lambda row: row["time_ratios"],
        most=4.0,
    ),
    "compute": Plot("compute overhead", lambda row: row["compute_overhead"]),
    "fragmentation": Plot(
        "fragmentation\n(dotted: without addresses)",
        lambda row: row["fragmentation"],
        lambda row: row["layout"]["fragmentation_without"],
    ),
    "layout": Plot("layout cost", lambda row: row["layout"]["cost"]),
    "scatter": Plot("scatter of free bytes", lambda row: row["layout"]["scatter"]),
    "search": Plot("search time over op time", lambda row: row["search_fraction"]),
}


def draw(plan: Plan, results: Results, path: Path, what: str) -> None:
    """Draws the plan's cases: one of PLOTS over the memory ratio. Needs matplotlib."""
    plot = PLOTS[what]
    nets, policies = plan.nets, plan.policies
    rows = [row for row in results.rows_of(plan) if row["status"] == "ok"]
    lines, columns = pictures.grid(len(nets), 4)
    figure, axes = pictures.panels(lines, columns, (4 * columns, 3 * lines))
    for panel in axes.flat[len(nets) :]:
        panel.set_axis_off()
    for net, panel in zip(nets, axes.flat, strict=False):
        for number, policy in enumerate(policies):
            cases = [row for row in rows if (row["net"], row["policy"]) == (net, policy)]
            _draw_policy(panel, plot, cases, policy, f"C{number % 10}")
        if plot.most is not None:
            panel.set_ylim(0, min(plot.most, panel.get_ylim()[1]))
        panel.invert_xaxis()
        panel.set_title(f"{net} ({results.peaks.get(net, 0) / 1e6:.0f} MB)", fontsize=10)
        panel.set_xlabel("budget, % of the unbudgeted peak")
        panel.set_ylabel(plot.label)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=6, fontsize=8)
    pictures.save(figure, path, 130)


def _draw_policy(
    panel: Any, plot: Plot, cases: list[dict[str, Any]], policy: str, colour: str
) -> None:
    """Draws a line, which ends where the next smaller budget is too small."""
    style: dict[str, Any] = {"color": colour, "linewidth": 1}
    panel.plot(*_line(cases, plot.value), "o-", markersize=3, label=policy, **style)
    if plot.without is not None:
        panel.plot(*_line(cases, plot.without), ":", **style)
    each = plot.each
    if each is not None:
        percents, least = _line(cases, lambda row: min(each(row)))
        _, most = _line(cases, lambda row: max(each(row)))
        panel.fill_between(percents, least, most, color=colour, alpha=0.15, linewidth=0)


def _line(
    rows: list[dict[str, Any]], value: Callable[[dict[str, Any]], float | None]
) -> tuple[list[float], list[float]]:
    points = sorted(
        (100 * row["fraction"], found) for row in rows if (found := value(row)) is not None
    )
    return [percent for percent, _ in points], [found for _, found in points]
