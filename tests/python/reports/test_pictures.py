"""The pictures of `recoup simulate` and `recoup layout`, checked by their figure objects."""

from pathlib import Path
from typing import Any

import pytest

from command import refused
from recoup.commands.simulate.picture import Row, draw_plot, plot_figure
from recoup.offline import layout
from recoup.offline.layout import Buffer
from recoup.offline.layout_picture import layout_figure
from recoup.offline.optimum import Optimum
from recoup.offline.traces import Simulation

PEAK = 1000


def row(policy: str, percent: int, ratio: float, status: Any = "ok") -> Row:
    fields: dict[str, Any] = dict.fromkeys(Simulation.__dataclass_fields__)
    fields |= {
        "policy": policy, "budget_bytes": PEAK * percent // 100, "status": status,
        "time_ratio": ratio,
    }  # fmt: skip
    return Row(policy, Simulation(**fields))


def lines_of(axes: Any) -> dict[str, list[tuple[float, float]]]:
    return {
        line.get_label(): list(zip(line.get_xdata(), line.get_ydata(), strict=True))
        for line in axes.get_lines()
        if not line.get_label().startswith("_")
    }


def marks_of(axes: Any) -> dict[str, list[tuple[float, float]]]:
    return {
        marks.get_label(): [(float(x), float(y)) for x, y in marks.get_offsets()]
        for marks in axes.collections
    }


def legend_of(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_budgets_fall_to_the_right() -> None:
    figure = plot_figure([row("lru", 100, 1.0), row("lru", 50, 1.5)], [], PEAK, "t")
    (axes,) = figure.axes
    left, right = axes.get_xlim()
    assert left > 100 > 50 > right
    assert lines_of(axes) == {"lru": [(50, 1.5), (100, 1.0)]}
    assert legend_of(figure) == ["lru"]


def test_a_failed_run_has_a_mark_above_the_chart() -> None:
    rows = [
        row("lru", 100, 1.0), row("lru", 50, 0.0, "too slow"), row("lru", 20, 0.0, "out of budget"),
        row("dtr", 100, 1.0), row("dtr", 50, 1.2), row("dtr", 20, 0.0, "out of budget"),
    ]  # fmt: skip
    figure = plot_figure(rows, [], PEAK, "t")
    above, axes = figure.axes
    assert [text.get_text() for text in above.get_yticklabels()] == ["lru", "dtr"]
    # The first row is at the top.
    assert above.get_ylim()[0] > 1 > 0 > above.get_ylim()[1]
    assert marks_of(above) == {
        "out of budget": [(20, 0), (20, 1)],
        "too slow (--max-time-ratio)": [(50, 0)],
    }
    assert above.get_xlim() == axes.get_xlim()
    # A failed run has no time ratio, so no point below.
    assert lines_of(axes) == {"lru": [(100, 1.0)], "dtr": [(50, 1.2), (100, 1.0)]}
    assert set(legend_of(figure)) == {
        "lru", "dtr", "out of budget", "too slow (--max-time-ratio)",
    }  # fmt: skip


def test_a_chart_with_one_feasible_run() -> None:
    rows = [row("lru", 100, 1.7), *(row("lru", p, 0.0, "out of budget") for p in (50, 20))]
    above, axes = plot_figure(rows, [], PEAK, "t").axes
    assert lines_of(axes) == {"lru": [(100, 1.7)]}
    low, high = axes.get_ylim()
    assert low < 1.0 < 1.7 < high
    assert axes.get_xlim()[1] < 20
    assert marks_of(above) == {"out of budget": [(50, 0), (20, 0)]}


def test_one_policy_far_above_does_not_flatten_the_others() -> None:
    rows = [
        row(name, p, ratio)
        for name in ("a", "b", "c")
        for p, ratio in ((100, 1.0), (60, 1.1), (30, 1.2))
    ]
    rows += [row("slow", 100, 1.0), row("slow", 60, 4.25), row("slow", 30, 9.5)]
    figure = plot_figure(rows, [], PEAK, "t")
    (axes,) = figure.axes
    top = axes.get_ylim()[1]
    # Most curves take a quarter of the height: an excess of 0.2, or 4 times that.
    assert top == pytest.approx(1.8)
    assert sorted(text.get_text() for text in axes.texts) == ["4.25", "9.50"]
    assert {text.xy for text in axes.texts} == {(60, top), (30, top)}
    assert "above 1.80: cut off" in legend_of(figure)
    # The line itself keeps its values, and is cut at the edge.
    assert lines_of(axes)["slow"] == [(30, 9.5), (60, 4.25), (100, 1.0)]


def test_a_curve_that_rises_as_a_whole_is_not_cut() -> None:
    rows = [row("a", p, ratio) for p, ratio in ((100, 1.0), (80, 1.5), (60, 2.0), (40, 3.0))]
    figure = plot_figure(rows, [], PEAK, "t")
    assert figure.axes[0].get_ylim()[1] > 3.0
    assert not figure.axes[0].texts and legend_of(figure) == ["a"]


def test_all_policies_can_be_distinguished() -> None:
    names = [f"policy {i}" for i in range(24)]
    (axes,) = plot_figure([row(name, 50, 1.0) for name in names], [], PEAK, "t").axes
    styles = {
        (line.get_color(), line.get_linestyle())
        for line in axes.get_lines()
        if line.get_label() in names
    }
    assert len(styles) == len(names)


def test_the_optimum_is_drawn_and_infeasible_budgets_are_marked() -> None:
    def found(percent: int, status: Any, ratio: float | None, bound: float | None) -> Optimum:
        return Optimum(PEAK * percent // 100, status, ratio, bound, 1.0, 1, 1, None)

    rows = [row("lru", 50, 1.0), row("lru", 20, 1.4), row("lru", 10, 1.5)]
    optima = [
        found(50, "optimal", 1.0, 1.0),
        found(20, "timed out", None, 1.1),
        found(10, "infeasible", None, None),
    ]
    above, axes = plot_figure(rows, optima, PEAK, "t").axes
    assert lines_of(axes)["optimum"] == [(50, 1.0)]
    assert [text.get_text() for text in above.get_yticklabels()] == ["optimum"]
    assert marks_of(above) == {"out of budget": [(10, 0)]}


@pytest.mark.parametrize(("name", "begins"), [("p.png", b"\x89PNG"), ("p", b"\x89PNG")])
def test_kinds_of_files(tmp_path: Path, name: str, begins: bytes) -> None:
    draw_plot([row("lru", 50, 1.0)], [], PEAK, "t", tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(begins)
    with pytest.raises(ValueError, match=r"^--plot must end in one of .*\.png.*; got .*p\.doc$"):
        draw_plot([row("lru", 50, 1.0)], [], PEAK, "t", tmp_path / "p.doc")
    assert not (tmp_path / "p.doc").exists()


# ---- layouts ----

BUFFERS = [Buffer(f"b{i}", i, i + 3, 100 * (i % 4 + 1)) for i in range(12)]


def test_all_planners_have_a_panel_of_the_same_scale() -> None:
    names = [planner.name for planner in layout.planners() if planner.places]
    results = [layout.plan(BUFFERS, planner=name) for name in names]
    figure = layout_figure(results, "file")
    shown = [panel for panel in figure.axes if panel.axison]
    assert [panel.get_title().split(",")[0] for panel in shown] == names
    assert len(figure.axes) - len(shown) == len(names) % 2
    assert len({panel.get_ylim() for panel in shown}) == 1
    assert shown[0].get_ylim()[1] > max(result.size_bytes for result in results)
    for panel, result in zip(shown, results, strict=True):
        (patches,) = panel.collections
        assert len(patches.get_paths()) == len(BUFFERS)
        (bound,) = panel.get_lines()
        assert bound.get_ydata()[0] == result.bound_bytes
    # The figure is about as wide as high, for any number of panels.
    width, height = figure.get_size_inches()
    assert 0.7 < width / height < 2
    last = shown[-2:]
    assert [panel.get_xlabel() for panel in last] == ["time", "time"]


def test_one_layout_fills_the_picture() -> None:
    figure = layout_figure([layout.plan(BUFFERS, planner="ge")], "file")
    (panel,) = figure.axes
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("time", "address")
    assert "file: the dotted line is the bound, " in figure.get_suptitle()


def test_a_layout_is_drawn_as_png_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "example.csv"
    file.write_text("id,lower,upper,size\n1,0,2,3\n")
    line = refused(capsys, "layout", file, "--plot", tmp_path / "x.svg")
    assert line.startswith("recoup layout: error: --plot must end in .png; got ")
