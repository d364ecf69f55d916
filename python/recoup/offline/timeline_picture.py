"""A picture of a simulated run: memory over time, with its evictions and replays."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recoup._reporting.moments import Moment

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Colour of each kind, and parts of op names; an op has the first kind that matches.
_KINDS = {
    "attention": ("#1f77b4", ("attention",)),
    "convolution": ("#ff7f0e", ("conv",)),
    "recurrent": ("#2ca02c", ("rnn", "lstm", "gru")),
    "matrix product": ("#d62728", ("addmm", "bmm", "::mm", "linear", "matmul")),
    "normalization": ("#9467bd", ("norm",)),
    "loss, softmax": ("#8c564b", ("softmax", "loss")),
    "pooling": ("#e377c2", ("pool",)),
    "activation": ("#17becf", ("relu", "elu", "tanh", "sigmoid", "silu", "threshold")),
    "other": ("#a9a9a9", ("",)),
}


@dataclass(frozen=True)
class Timeline:
    """One panel of the picture."""

    title: str
    moments: Sequence[Moment]
    """The run's events, at least one."""
    budget_bytes: int


def kind_of(op: str) -> str:
    """The kind of an op, by its name."""
    return next(kind for kind, (_, parts) in _KINDS.items() if any(part in op for part in parts))


def last_step(moments: Sequence[Moment]) -> list[Moment]:
    """The moments of the last step, up to its end; all if no step is marked."""
    ends = [index for index, moment in enumerate(moments) if moment.kind == "step"]
    if not ends:
        return list(moments)
    first = ends[-2] + 1 if len(ends) > 1 else 0
    return list(moments[first : ends[-1] + 1])


def draw_timelines(panels: Sequence[Timeline], form: str = "png") -> bytes:
    """Draws the panels below one another; `form` is a format of matplotlib, which it needs."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    figure = Figure(figsize=(11, 0.6 + 3.4 * len(panels)), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2 * len(panels), 1, squeeze=False, height_ratios=[4, 1] * len(panels))
    shown: set[str] = set()
    for number, panel in enumerate(panels):
        memory, lanes = axes[2 * number][0], axes[2 * number + 1][0]
        lanes.sharex(memory)
        _draw_memory(memory, panel)
        _draw_lanes(lanes, panel)
        shown |= {kind_of(moment.name) for moment in panel.moments if moment.cost_ns > 0}
    figure.legend(
        handles=[
            *(Patch(color=_KINDS[kind][0], label=kind) for kind in _KINDS if kind in shown),
            Patch(facecolor="#d0d0d0", label="pale: replays"),
            Line2D([], [], color="black", linewidth=0.8, linestyle="--", label="the budget"),
        ],
        loc="outside lower center",
        ncols=6,
        fontsize=8,
        frameon=False,
    )
    file = io.BytesIO()
    figure.savefig(file, format=form)
    return file.getvalue()


def _spans(panel: Timeline, kind: str, only: str) -> list[tuple[float, float, float]]:
    """(left, width, height) in ms and MB of the ops of a kind; only: "op" or "replay"."""
    start = panel.moments[0].start_ns
    return [
        ((moment.start_ns - start) / 1e6, moment.cost_ns / 1e6, moment.charged_bytes / 1e6)
        for moment in panel.moments
        if moment.kind == only and kind_of(moment.name) == kind
    ]


def _draw_memory(axes: "Axes", panel: Timeline) -> None:
    """Bytes charged right after each op, as wide as the op's cost."""
    from matplotlib.collections import PolyCollection

    for kind, (colour, _) in _KINDS.items():
        for only, alpha in (("op", 1.0), ("replay", 0.45)):
            bars = [
                [(left, 0), (left, height), (left + width, height), (left + width, 0)]
                for left, width, height in _spans(panel, kind, only)
            ]
            axes.add_collection(PolyCollection(bars, facecolors=colour, alpha=alpha, linewidths=0))
    axes.axhline(panel.budget_bytes / 1e6, color="black", linewidth=0.8, linestyle="--")
    last = panel.moments[-1]
    axes.set_xlim(0, (last.start_ns + last.cost_ns - panel.moments[0].start_ns) / 1e6)
    axes.set_ylim(0, 1.08 * panel.budget_bytes / 1e6)
    axes.set_ylabel("memory, MB", fontsize=8)
    axes.set_title(panel.title, fontsize=9, loc="left")
    axes.tick_params(labelsize=8, labelbottom=False)


def _draw_lanes(axes: "Axes", panel: Timeline) -> None:
    """Three rows: the program's ops, replays, and a tick for each eviction."""
    for row, only in ((2, "op"), (1, "replay")):
        for kind, (colour, _) in _KINDS.items():
            spans = [(left, width) for left, width, _ in _spans(panel, kind, only)]
            axes.broken_barh(spans, (row + 0.1, 0.8), facecolors=colour, linewidth=0)
    start = panel.moments[0].start_ns
    evictions = [(m.start_ns - start) / 1e6 for m in panel.moments if m.kind == "evict"]
    axes.vlines(evictions, 0.1, 0.9, color="black", linewidth=0.5)
    axes.set_ylim(0, 3)
    axes.set_yticks([0.5, 1.5, 2.5], ["evictions", "replays", "program"], fontsize=8)
    axes.tick_params(axis="x", labelsize=8)
    axes.set_xlabel("time of ops, ms", fontsize=8)
