"""Time and memory of every net over its budget: two panels for each net."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from recoup.bench.harness import pictures
from recoup.bench.real.results import Plan, Results
from recoup.bench.real.summary import Line, Summary, summaries
from recoup.bench.real.ways import CHECKPOINT, PLAIN, RECOUP, TIER

_OURS: dict[str, dict[str, Any]] = {
    RECOUP.name: {"color": "#1f6fb4", "linewidth": 1.2},
    TIER.name: {"color": "#b4381f", "linewidth": 1.2},
}
_OTHERS = {
    way.name: {"marker": marker, "color": colour, "linestyle": "none", "markersize": 5}
    for way, marker, colour in zip(
        (*PLAIN, CHECKPOINT),
        ("o", "s", "^", "v", "D"),
        ("#5a5a5a", "#8c6d31", "#3c8d5a", "#7a5aa6", "#d1602b"),
        strict=True,
    )
}
_COLUMNS = 3
"""Maximum number of nets in a row."""
_MOST = 3.0
"""Upper limit of the time axis."""


def draw(plan: Plan, results: Results, path: Path) -> None:
    """Draws the picture. Needs matplotlib."""
    nets = list(summaries(plan, results))
    rows, columns = pictures.grid(len(nets), _COLUMNS)
    figure, axes = pictures.panels(
        2 * rows, columns, (3.6 * columns, 3.9 * rows), height_ratios=[2, 1] * rows
    )
    for panel in axes.flat:
        panel.set_visible(False)
    handles: dict[str, Any] = {}
    for number, net in enumerate(nets):
        row, column = divmod(number, columns)
        time, memory = axes[2 * row][column], axes[2 * row + 1][column]
        _draw_time(time, net)
        _draw_memory(memory, net)
        for handle, label in zip(*time.get_legend_handles_labels(), strict=True):
            handles[label] = handle
    figure.legend(
        handles.values(),
        handles.keys(),
        loc="outside lower center",
        ncols=2 * columns,
        fontsize=8,
        frameon=False,
    )
    pictures.save(figure, path, 110)


def _draw_time(panel: Any, net: Summary) -> None:
    """Draws the time of a step; the band is from the fastest round to the slowest."""
    base = net.fastest.seconds() or 1.0

    def over(of: Callable[[list[float]], float]) -> Callable[[Line], float]:
        return lambda line: (line.seconds(of) or 0.0) / base

    for line in net.lines:
        if line.runs and line.way in _OTHERS:
            percent = 100 * (line.peak_bytes or net.peak_bytes) / net.peak_bytes
            panel.plot([percent], [line.over(net.fastest)], label=line.label, **_OTHERS[line.way])
    for way, style in _OURS.items():
        if ours := _ours(net, way):
            percents = [100 * line.row["fraction"] for line in ours]
            low, high = ([over(of)(line) for line in ours] for of in (min, max))
            panel.plot(
                percents, [line.over(net.fastest) for line in ours], ".-", label=way, **style
            )
            panel.fill_between(percents, low, high, color=style["color"], alpha=0.15, linewidth=0)
    panel.axhline(1.0, color="grey", linewidth=0.8, linestyle=":")
    panel.set_title(f"{net.net} ({net.peak_bytes / 1e9:.1f} GB)", fontsize=9)
    panel.set_ylabel("step, fastest plain = 1", fontsize=8)
    panel.set_ylim(0, min(_MOST, 1.05 * panel.get_ylim()[1]))
    _dress(panel, net)


def _draw_memory(panel: Any, net: Summary) -> None:
    """Draws the peak resident memory of the process over the budget."""
    for line in net.lines:
        if line.runs and line.way in _OTHERS:
            percent = 100 * (line.peak_bytes or net.peak_bytes) / net.peak_bytes
            panel.plot([percent], [_resident(line)], **_OTHERS[line.way])
    for way, style in _OURS.items():
        ours = _ours(net, way)
        percents = [100 * line.row["fraction"] for line in ours]
        panel.plot(percents, list(map(_resident, ours)), ".-", **style)
    panel.set_ylabel("peak RSS, GB", fontsize=8)
    panel.set_xlabel("budget, % of plain's tensors", fontsize=8)
    panel.set_ylim(0, 1.05 * panel.get_ylim()[1])
    _dress(panel, net)


def _ours(net: Summary, way: str) -> list[Line]:
    lines = [line for line in net.lines if line.way == way and line.runs]
    return sorted(lines, key=lambda line: float(line.row["fraction"]), reverse=True)


def _resident(line: Line) -> float:
    return (line.median("peak_rss_bytes") or 0.0) / 1e9


def _dress(panel: Any, net: Summary) -> None:
    panel.set_visible(True)
    panel.set_xlim(105, 15 if _ours(net, TIER.name) else 25)
    panel.tick_params(labelsize=8)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
