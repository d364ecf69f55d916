"""A picture of layouts: addresses over time."""

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from recoup._memory.sizes import format_bytes
from recoup.offline.layout import Layout

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_DRAWN = 20_000  # buffers of a layout, the largest ones: more cannot be distinguished
_MOST_COLUMNS = 2  # of panels, so that a panel is wide enough


def draw_layouts(results: Sequence[Layout], title: str) -> bytes:
    """`layout_figure` as a PNG. Needs matplotlib."""
    file = io.BytesIO()
    layout_figure(results, title).savefig(file, format="png", metadata={"Software": None})
    return file.getvalue()


def layout_figure(results: Sequence[Layout], title: str) -> "Figure":
    """One panel for each layout, to one scale. The dotted line is the bound. Needs matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, MultipleLocator

    columns = min(_MOST_COLUMNS, len(results))
    rows = -(-len(results) // columns)
    width, height = (9, 5) if len(results) == 1 else (6.5 * columns, 3.2 * rows)
    figure = Figure(figsize=(width, height), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    panels = list(grid.flat)
    for number, (panel, result) in enumerate(zip(panels, results, strict=False)):
        _draw(panel, result)
        if number % columns == 0:
            panel.set_ylabel("address")
        # The last panel of a column need not be in the last row.
        if number + columns >= len(results):
            panel.set_xlabel("time")
            panel.tick_params(labelbottom=True)
    for panel in panels[len(results) :]:
        panel.set_axis_off()
    tallest = max(1, *(max(result.size_bytes, result.bound_bytes) for result in results))
    panels[0].set_ylim(0, tallest * 1.02)
    # Four to ten marks, at multiples of a power of two, whose labels are short.
    panels[0].yaxis.set_major_locator(MultipleLocator(1 << max(0, tallest.bit_length() - 3)))
    panels[0].yaxis.set_major_formatter(FuncFormatter(lambda count, _: format_bytes(int(count))))
    bound = format_bytes(max(result.bound_bytes for result in results))
    figure.suptitle(f"{title}: the dotted line is the bound, {bound}", fontsize=10)
    return figure


def _draw(panel: Any, result: Layout) -> None:
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    drawn = sorted(range(len(result.buffers)), key=lambda i: -result.buffers[i].size_bytes)
    patches = [
        Rectangle((b.lower, result.offsets[i]), b.upper - b.lower, b.size_bytes)
        for i, b in ((i, result.buffers[i]) for i in drawn[:_MOST_DRAWN])
    ]
    collection = PatchCollection(patches, cmap="tab20", edgecolor="white", linewidth=0.3)
    collection.set_array([float(i % 20) for i in range(len(patches))])
    panel.add_collection(collection)
    panel.axhline(result.bound_bytes, color="black", linewidth=0.8, linestyle=":")
    panel.autoscale_view(scaley=False)
    panel.set_title(f"{result.planner}, {format_bytes(result.size_bytes)}", fontsize=9)
