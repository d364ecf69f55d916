"""The picture of layouts: addresses over time."""

import io
from collections.abc import Sequence

from recoup.offline.layout import Layout
from recoup.sizes import format_bytes

_MOST_DRAWN = 20_000  # buffers of a layout: the largest, when there are more than anybody can see


def draw_layouts(results: Sequence[Layout], title: str) -> bytes:
    """A PNG with a panel for each layout. The dotted line is the bound. Needs matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.collections import PatchCollection
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    figure = Figure(figsize=(9, 5 * len(results)), dpi=120)
    FigureCanvasAgg(figure)
    for number, result in enumerate(results, start=1):
        axes = figure.add_subplot(len(results), 1, number)
        drawn = sorted(range(len(result.buffers)), key=lambda i: -result.buffers[i].size_bytes)
        patches = [
            Rectangle((b.lower, result.offsets[i]), b.upper - b.lower, b.size_bytes)
            for i, b in ((i, result.buffers[i]) for i in drawn[:_MOST_DRAWN])
        ]
        collection = PatchCollection(patches, cmap="tab20", edgecolor="white", linewidth=0.3)
        collection.set_array([float(i % 20) for i in range(len(patches))])
        axes.add_collection(collection)
        axes.axhline(result.bound_bytes, color="black", linewidth=0.8, linestyle=":")
        axes.autoscale_view()
        axes.set_ylim(0, max(1, result.size_bytes) * 1.02)
        axes.set_xlabel("time")
        axes.set_ylabel("address, bytes")
        axes.set_title(
            f"{title}: {result.planner}, {format_bytes(result.size_bytes)}, "
            f"bound {format_bytes(result.bound_bytes)} (dotted)",
            fontsize=9,
        )
    file = io.BytesIO()
    figure.savefig(file, format="png", metadata={"Software": None})
    return file.getvalue()
