"""recoup.page in Chromium: the chart is drawn, reacts to pointer and keys, and makes no request.
Skipped without Chromium.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chromium import Browser, browser
from page_reports import EVIL, MIB, empty_step, evil_report, gpt2_report, large_report, plain_report
from recoup import page
from recoup._memory.sizes import format_bytes, parse_bytes
from recoup._reporting.report import format_ns
from recoup.page.picture import column_highest, sample
from recoup.page.steps import read_step

# The margins of the picture and its height: SPACE in paint.js.
LEFT, RIGHT, TOP, HEIGHT = 86, 14, 20, 320


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture
def shown(chromium: Browser, tmp_path: Path) -> Iterator[Browser]:
    """The page of a training step; the test fails if the page reports an error."""
    open_report(chromium, tmp_path, gpt2_report(spilled=True))
    yield chromium
    assert chromium.messages == []


def open_report(chromium: Browser, folder: Path, report: dict[str, Any]) -> Path:
    file = folder / "page.html"
    file.write_text(page.render(report), encoding="utf-8")
    chromium.open(file)
    return file


def pixels(chromium: Browser, canvas: str = "base") -> dict[str, int]:
    """The number of pixels of each colour in CSS notation; unpainted pixels are left out."""
    return dict(
        chromium.value(
            f"""(() => {{
            const canvas = document.getElementById({json.dumps(canvas)});
            // Chromium warns of canvases that are read often.
            const copy = new OffscreenCanvas(canvas.width, canvas.height);
            const context = copy.getContext("2d", {{ willReadFrequently: true }});
            context.drawImage(canvas, 0, 0);
            const {{ data }} = context.getImageData(0, 0, canvas.width, canvas.height);
            const counts = {{}};
            for (let i = 0; i < data.length; i += 4) {{
                if (!data[i + 3]) continue;
                const colour = `rgb(${{data[i]}}, ${{data[i + 1]}}, ${{data[i + 2]}})`;
                counts[colour] = (counts[colour] ?? 0) + 1;
            }}
            return counts;
            }})()"""
        )
    )


def place(chromium: Browser, fraction: float) -> tuple[float, float]:
    """Position in the window of a fraction of the picture's width, in its lower half."""
    x, y, width = chromium.value(
        "(() => { by('over').scrollIntoView({ block: 'nearest' });"
        " const box = by('over').getBoundingClientRect();"
        " return [box.x, box.y, box.width]; })()"
    )
    return x + LEFT + fraction * (width - LEFT - RIGHT), y + TOP + HEIGHT * 0.75


def move(chromium: Browser, fraction: float) -> None:
    chromium.mouse("mouseMoved", *place(chromium, fraction))
    chromium.settle()


def drag(chromium: Browser, start: float, end: float, modifiers: int = 0) -> None:
    held: dict[str, Any] = {"button": "left", "modifiers": modifiers}
    chromium.mouse("mousePressed", *place(chromium, start), **held, clickCount=1)
    chromium.mouse("mouseMoved", *place(chromium, end), **held, buttons=1)
    chromium.mouse("mouseReleased", *place(chromium, end), **held, clickCount=1)
    chromium.settle()


def view(chromium: Browser) -> tuple[float, float]:
    """The shown range of the step in milliseconds."""
    text = chromium.text("#range")
    found = re.fullmatch(r"(?:([\d.]+) (\w+) to ([\d.]+) (\w+) of )?([\d.]+) (\w+)", text)
    assert found, text
    scale = {"s": 1e3, "ms": 1.0, "us": 1e-3, "ns": 1e-6}
    if found[1] is None:
        return 0.0, float(found[5]) * scale[found[6]]
    return float(found[1]) * scale[found[2]], float(found[3]) * scale[found[4]]


def test_the_page_opens_from_a_file_without_requests(chromium: Browser, tmp_path: Path) -> None:
    file = open_report(chromium, tmp_path, gpt2_report())
    assert chromium.requests == [file.as_uri()]
    assert chromium.messages == []


def test_the_chart_draws_and_the_toggle_changes_it(shown: Browser) -> None:
    modules = pixels(shown)
    series = shown.value("moduleSeries(decodeStep(embedded), 3).colours")
    large = [colour for colour in series if modules.get(colour, 0) > 300]
    assert len(large) >= 12  # one for each block
    names = shown.text("#legend-rows").splitlines()
    assert names[0] == "budget" and "transformer.h.11" in names
    shown.click("[name=mode][value=kind]")
    kinds = pixels(shown)
    for colour in ("rgb(86, 180, 233)", "rgb(0, 114, 178)", "rgb(0, 158, 115)"):
        assert kinds[colour] > 10_000 > modules.get(colour, 0)
    assert "activations" in shown.text("#legend-rows")
    shown.click("[name=mode][value=module]")
    assert pixels(shown) == modules


def test_modules_are_grouped_at_the_chosen_depth(shown: Browser) -> None:
    assert shown.value("by('depth').value") == "3"
    shown.value("by('depth').value = '1', by('depth').dispatchEvent(new Event('change'))")
    shown.settle()
    names = shown.value(
        "[...document.querySelectorAll('#legend-rows bdi')].map((at) => at.innerText)"
    )
    assert names[2:] == ["transformer", "(outside of any module)", "lm_head"]


_BROKEN = """(() => {
    const broken = [];
    for (const cell of document.querySelectorAll('.recoup-page td, .recoup-page th')) {
        const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
        for (let node = texts.nextNode(); node; node = texts.nextNode()) {
            for (const word of node.data.matchAll(/[A-Za-z0-9]+/g)) {
                const range = document.createRange();
                range.setStart(node, word.index);
                range.setEnd(node, word.index + word[0].length);
                const tops = new Set([...range.getClientRects()].map((at) => Math.round(at.top)));
                if (tops.size > 1 && word[0].length < 40) broken.push(word[0]);
            }
        }
    }
    return broken;
})()"""


def test_no_word_of_a_table_breaks_on_a_phone(chromium: Browser, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(page.render(gpt2_report()), encoding="utf-8")
    chromium.open(file, width=360)
    chromium.value("document.querySelectorAll('details').forEach((at) => (at.open = true))")
    assert chromium.value("document.querySelectorAll('.recoup-page td').length") > 50
    assert chromium.value(_BROKEN) == []


def test_the_legend_has_at_least_the_sizes_of_the_peak(chromium: Browser, tmp_path: Path) -> None:
    report = gpt2_report()
    open_report(chromium, tmp_path, report)
    chromium.click("[name=mode][value=kind]")
    names, sizes = (
        chromium.value(
            f"[...document.querySelectorAll('#legend-rows {tag}')].map((at) => at.innerText)"
        )
        for tag in ("bdi", "b")
    )
    held: dict[str, int] = {}
    for row in report["peak"]["rows"]:
        held[row["kind"]] = held.get(row["kind"], 0) + row["bytes"]
    reported = dict(zip(names, sizes, strict=True))
    assert reported.pop("budget") == format_bytes(report["step"]["budget_bytes"])
    assert reported.pop("all charged memory") == format_bytes(report["peak"]["bytes"])
    for name, size in reported.items():
        at_peak = held.get(name, 0)
        assert size == format_bytes(at_peak) or parse_bytes(size) > at_peak, name


def test_hovering_shows_the_values_at_that_time(chromium: Browser, tmp_path: Path) -> None:
    group = [{"module": f"net.{name}", "kind": "activations", "op": "aten::mm"} for name in "ab"]
    events = [
        ["op", 0, 1_000_000, 0, "aten::relu", 1],
        ["replay", 500_000, 100_000, 0, "aten::mm", 0],
        ["evict", 500_000, 0, 3 * MIB, "", 0],
        ["evict", 500_001, 0, 4 * MIB, "", 1],
        ["evict", 100_000, 0, 9 * MIB, "", 1],
    ]
    step = empty_step() | {"begin_ns": 0, "end_ns": 1_000_000, "budget_bytes": 80 * MIB}
    step |= {"groups": group, "events": events, "charged": [[0, 60 * MIB]]}
    step["spans"] = [[0, 1_000_000, 10 * MIB, 0], [400_000, 600_000, 30 * MIB, 1]]
    open_report(chromium, tmp_path, {**plain_report(), "step": step})
    assert chromium.value("by('hover').hidden")
    columns = chromium.value("by('over').clientWidth") - LEFT - RIGHT
    move(chromium, (columns // 2 + 0.5) / columns)  # the column with the middle of the step
    lines = chromium.text("#hover").splitlines()
    assert re.fullmatch(r"\d+ us: 60\.0 MiB charged, 75\.0 % of the budget", lines[0]), lines
    assert abs(float(lines[0].split()[0]) - 500) < 2
    assert [line for line in lines[1:] if line] == [
        "net.b · activations · aten::mm",
        "30.0 MiB",
        "net.a · activations · aten::mm",
        "10.0 MiB",
        "op: aten::relu in net.b, 1.00 ms",
        "replay: aten::mm in net.a, 100.00 us",
        "evict: 7.0 MiB, net.a; 1 more here",
    ]
    chromium.mouse("mouseMoved", 1, 1)
    chromium.settle()
    assert chromium.value("by('hover').hidden")
    assert chromium.messages == []


def test_the_legend_keeps_its_order_and_marks_the_hovered_kind(shown: Browser) -> None:
    names = "[...document.querySelectorAll('#legend-rows li bdi')].map((at) => at.innerText)"
    before = shown.value(names)
    move(shown, 0.3)
    title = shown.text("#legend-title")
    assert title.startswith("At ") and title.endswith("; ordered by the most bytes of each")
    series = [name for name in shown.value(names) if name != "workspace"]
    assert series == [name for name in before if name != "workspace"]
    shown.press("Escape")
    shown.mouse("mouseMoved", 1, 1)
    drag(shown, 0.1, 0.2)
    shown.mouse("mouseMoved", 1, 1)
    shown.settle()
    title = shown.text("#legend-title")
    assert title == "The most bytes of each in the part shown; ordered as in the step"


def test_the_legend_says_when_each_budget_was_in_force(chromium: Browser, tmp_path: Path) -> None:
    group = [{"module": "net", "kind": "activations", "op": "aten::mm"}]
    step = empty_step() | {"begin_ns": 0, "end_ns": 1_000_000, "budget_bytes": 40 * MIB}
    step |= {"groups": group, "charged": [[0, 60 * MIB], [500_000, 30 * MIB]]}
    step["budgets"] = [[0, 80 * MIB], [500_000, 40 * MIB]]
    step["spans"] = [[0, 1_000_000, 10 * MIB, 0]]
    open_report(chromium, tmp_path, {**plain_report(), "step": step})
    assert chromium.text("#legend-rows").splitlines()[:6:2] == [
        "budget",
        "all charged memory",
        "net",
    ]
    for fraction, said in ((0.25, "60.0 MiB charged, 75.0 %"), (0.75, "30.0 MiB charged, 75.0 %")):
        move(chromium, fraction)
        assert said in chromium.text("#hover")
        assert "workspace" in chromium.text("#legend-rows")
    assert chromium.messages == []


def test_the_legend_has_the_most_bytes_of_each_module(chromium: Browser, tmp_path: Path) -> None:
    """Two modules that hold memory at different instants."""
    groups = [{"module": name, "kind": "activations", "op": "aten::mm"} for name in ("net", "loss")]
    step = empty_step() | {"begin_ns": 0, "end_ns": 1_000_000, "groups": groups}
    step["charged"] = [[0, 10 * MIB], [500_000, 30 * MIB], [600_000, 20 * MIB]]
    step["spans"] = [
        *([0, 400_000, 10 * MIB, 0], [500_000, 600_000, 30 * MIB, 1]),
        *([600_000, 700_000, 5 * MIB, 0], [600_000, 1_000_000, 15 * MIB, 1]),
    ]
    open_report(chromium, tmp_path, {**plain_report(), "step": step})
    assert chromium.text("#legend-rows").splitlines() == [
        *("all charged memory", "30.0 MiB", "loss", "30.0 MiB", "net", "10.0 MiB")
    ]
    drag(chromium, 0.62, 0.68)
    chromium.mouse("mouseMoved", 1, 1)
    chromium.settle()
    assert chromium.text("#legend-rows").splitlines() == [
        *("all charged memory", "20.0 MiB", "loss", "15.0 MiB", "net", "5.0 MiB")
    ]
    assert chromium.messages == []


def test_dragging_wheel_and_buttons_zoom(shown: Browser) -> None:
    whole = view(shown)
    before = pixels(shown)
    drag(shown, 0.5, 0.75)
    low, high = view(shown)
    assert low == pytest.approx(whole[1] * 0.5, rel=0.02)
    assert high == pytest.approx(whole[1] * 0.75, rel=0.02)
    assert pixels(shown) != before
    drag(shown, 0.25, 0.75, modifiers=8)  # Shift
    assert view(shown) == pytest.approx((low - (high - low) / 2, high - (high - low) / 2), rel=0.02)
    shown.mouse("mousePressed", *place(shown, 0.5), button="left", clickCount=2)
    shown.mouse("mouseReleased", *place(shown, 0.5), button="left", clickCount=2)
    shown.settle()
    assert view(shown) == whole
    shown.mouse("mouseWheel", *place(shown, 0.5), deltaX=0, deltaY=-500)
    shown.wait("!by('range').innerText.startsWith('3')")
    low, high = view(shown)
    assert (low + high) / 2 == pytest.approx(whole[1] / 2, rel=0.05)
    assert high - low < whole[1] / 2 * 1.05
    shown.click("#zoom-reset")
    assert (view(shown), pixels(shown)) == (whole, before)
    shown.click("#zoom-out")
    assert view(shown) == whole
    for _ in range(40):
        shown.click("#zoom-in")
    low, high = view(shown)
    assert 0 < high - low < 1e-3  # in milliseconds: the least range is 100 ns


def test_keys_work_like_the_pointer(shown: Browser) -> None:
    whole = view(shown)
    shown.value("by('over').focus()")
    shown.press("ArrowRight")
    first = shown.text("#hover")
    assert "charged" in first
    for _ in range(30):
        shown.press("ArrowRight")
    assert shown.text("#hover") != first
    shown.press("+")
    assert view(shown)[1] - view(shown)[0] == pytest.approx(whole[1] / 2, rel=0.02)
    low = view(shown)[0]
    shown.press("PageUp")
    assert view(shown)[0] < low
    shown.press("Home")
    assert view(shown) == whole
    shown.press("Escape")
    assert shown.value("by('hover').hidden")


def test_tables_sort_and_fold(shown: Browser) -> None:
    names = """[...document.querySelectorAll(".modules tbody tr:not([hidden]) th bdi")]
        .map((name) => name.innerText)"""
    assert shown.value(names)[2:8] == ["transformer", "h", "0", "1", "2", "3"]
    shown.click(".modules tbody tr:nth-child(3) button")
    assert shown.value(names) == ["(outside of any module)", "lm_head", "transformer"]
    shown.click(".modules thead th:nth-child(2) button")
    assert shown.value(names) == ["transformer", "(outside of any module)", "lm_head"]
    head = "document.querySelector('.modules thead th:nth-child(2)').ariaSort"
    assert shown.value(head) == "descending"
    shown.click(".modules tbody tr button")
    evictions = ".modules thead th:nth-last-child(2)"
    shown.click(f"{evictions} button")
    assert [name for name in shown.value(names) if name.isdecimal()][-2:] == ["10", "11"]
    shown.click(f"{evictions} button")
    assert [name for name in shown.value(names) if name.isdecimal()][:2] == ["11", "10"]
    assert shown.value("document.querySelectorAll('[aria-sort]').length") == 1


def test_numbers_are_formatted_as_elsewhere(shown: Browser) -> None:
    sizes = [0, 1, 1023, 1024, 1280, 1792, 2304, 1536, 104858, 102348, 102349, 1048063, 1048064]
    sizes += [
        1 << 20,
        5 << 29,
        3 << 40,
        1025 << 40,
        (1 << 50) + 1,
        100 * 1024 + 512,
        101 * 1024 + 512,
    ]
    sizes += [(4 * i + 1) * 256 for i in range(4, 40)]
    assert shown.value(f"{sizes}.map(formatBytes)") == [format_bytes(size) for size in sizes]
    times = [0, 1, 999, 1000, 1125, 1375, 1625, 1875, 999_994, 999_995, 999_999, 10**6, 10**9 - 1]
    times += [10**9, 12_345_678_901, 2_125_000, 2_375_000, 10**14]
    assert shown.value(f"{times}.map(formatNs)") == [format_ns(duration) for duration in times]


def test_columns_show_their_highest_instant(chromium: Browser, tmp_path: Path) -> None:
    """Compared with the same function for the still picture, which is tested at every instant."""
    report = large_report(spans=300, events=0, charges=500)
    open_report(chromium, tmp_path, report)
    step = read_step(report["step"])
    swept = chromium.value(
        """(() => {
        const step = decodeStep(embedded);
        const series = kindSeries(step);
        const found = sweep(step, series.of, series.names.length, 0, step.length, 40);
        return [series.names, [...found.values], [...sweepLine(step.charged, 0, step.length, 40)]];
        })()"""
    )
    names, values, charged = swept
    assert names == ["parameters", "gradients", "activations"]
    stacks = sample(step, 40)
    assert values == stacks[:, stacks.any(axis=0)].reshape(-1).tolist()
    assert charged == column_highest(step.charged, step.length_ns, 40).tolist()


def test_untrusted_names_run_no_script(chromium: Browser, tmp_path: Path) -> None:
    file = open_report(chromium, tmp_path, evil_report())
    move(chromium, 0.5)
    chromium.click("[name=mode][value=kind]")
    chromium.click("[name=mode][value=module]")
    assert EVIL in chromium.text("#legend-rows")
    assert EVIL in chromium.text("#hover")
    assert chromium.value("document.querySelectorAll('img').length") == 0
    assert chromium.requests == [file.as_uri()]
    assert chromium.messages == []


def test_the_policy_blocks_foreign_scripts_and_requests(chromium: Browser, tmp_path: Path) -> None:
    text = page.render(gpt2_report()).replace("<h1>", f"{EVIL}<script>alert(2)</script><h1>")
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    chromium.open(tmp_path / "page.html")
    assert chromium.messages and all(
        "Content Security Policy" in said for said in chromium.messages
    )


@pytest.mark.parametrize("step", [None, empty_step()], ids=["no step", "empty step"])
def test_empty_pages_open(chromium: Browser, tmp_path: Path, step: Any) -> None:
    open_report(chromium, tmp_path, {**plain_report(), "step": step})
    if step:
        move(chromium, 0.3)
        chromium.click("#zoom-in")
        chromium.click("[name=mode][value=kind]")
        assert chromium.text("#range") == "0 ns"
    assert chromium.messages == []


def test_without_scripts_tables_and_a_still_picture_are_shown(
    chromium: Browser, tmp_path: Path
) -> None:
    text = page.render(gpt2_report()).replace("script-src", "no-script-src")
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    chromium.open(tmp_path / "page.html")
    assert "The chart needs JavaScript." in chromium.text("#still")
    assert chromium.value("document.querySelector('svg.still').getBoundingClientRect().width") > 300
    assert chromium.value("document.getElementById('chart').checkVisibility()") is False
    assert "transformer" in chromium.text(".modules")


def test_a_large_step_opens(chromium: Browser, tmp_path: Path) -> None:
    open_report(chromium, tmp_path, large_report())
    assert chromium.value("embedded.spans[0].length") == 200_000
    assert chromium.value("embedded.events[0].length") == 50_000
    assert max(pixels(chromium).values()) > 1000
    names = chromium.text("#legend-rows").splitlines()
    assert "8 smaller modules" in names
    move(chromium, 0.4)
    assert "charged" in chromium.text("#hover")
    drag(chromium, 0.4, 0.41)
    assert view(chromium)[0] == pytest.approx(4000, rel=0.02)
    assert chromium.messages == []


def test_the_dark_theme_is_legible(shown: Browser, tmp_path: Path) -> None:
    colours = []
    for dark in (False, True):
        shown.screenshot(tmp_path / "page.png", dark=dark)
        style = "getComputedStyle(document.body)"
        colours.append(shown.value(f"[{style}.backgroundColor, {style}.color]"))
        text = colours[-1][1]
        assert pixels(shown)[text] > 100  # the line of charged bytes
    assert colours[0] == ["rgb(255, 255, 255)", "rgb(27, 31, 38)"]
    assert colours[1] == ["rgb(20, 23, 28)", "rgb(228, 232, 238)"]
