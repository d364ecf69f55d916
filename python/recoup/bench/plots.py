"""The papers' plots: a panel a net, a line a policy."""

import io
from pathlib import Path
from typing import Any

from recoup.bench.runner import Plan, Results
from recoup.files import write_atomically

PLOTS = {
    "time": ("time_ratio", "time ratio"),
    "compute": ("compute_overhead", "compute overhead"),
    "fragmentation": ("fragmentation", "fragmentation, share of the budget"),
    "scatter": ("scatter", "1 - largest free / free, where it did not fit"),
    "search": ("search_share", "search time over op time"),
}


def draw(plan: Plan, results: Results, path: Path, what: str) -> None:
    """The plan's cases, memory ratio against one of PLOTS. Needs matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    key, label = PLOTS[what]
    nets, policies = plan.nets, plan.policies
    rows = [row for row in results.rows_of(plan) if row["status"] == "ok"]
    columns = min(4, max(1, len(nets)))
    lines = -(-max(1, len(nets)) // columns)
    figure, axes = pyplot.subplots(
        lines, columns, figsize=(4 * columns, 3 * lines), squeeze=False, layout="constrained"
    )
    for panel in axes.flat[len(nets) :]:
        panel.set_axis_off()
    for net, panel in zip(nets, axes.flat, strict=False):
        for policy in policies:
            points = sorted(
                (row["share"], row[key])
                for row in rows
                if (row["net"], row["policy"]) == (net, policy)
            )
            panel.plot(*_columns(points), marker="o", markersize=3, linewidth=1, label=policy)
        panel.set_title(net, fontsize=10)
        panel.set_xlabel("memory ratio")
        panel.set_ylabel(label)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=6, fontsize=8)
    picture = io.BytesIO()
    figure.savefig(picture, dpi=130, format=path.suffix[1:])
    pyplot.close(figure)
    write_atomically(path, picture.getvalue())


def _columns(points: list[tuple[float, Any]]) -> tuple[list[float], list[Any]]:
    return [point[0] for point in points], [point[1] for point in points]
