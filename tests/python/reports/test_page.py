"""recoup.page without a browser: the page has the right figures and runs no untrusted code."""

import base64
import copy
import dataclasses
import hashlib
import html
import json
import re
from typing import Any

import matplotlib
import numpy as np
import pytest

from page_parser import Parsed
from page_reports import (
    ENDINGS,
    EVIL,
    MIB,
    empty_step,
    evil_report,
    failed_report,
    gpt2_report,
    large_report,
    plain_report,
)
from recoup import Stats, page
from recoup._memory.sizes import format_bytes
from recoup._reporting.report import format_ns
from recoup.page import texts
from recoup.page.palette import KINDS, VIRIDIS
from recoup.page.picture import column_highest, sample
from recoup.page.steps import read_step
from recoup.page.tree import module_tree
from recoup.stats import ADDED_NS


def policy_of(parsed: Parsed) -> str:
    (policy,) = (a["content"] for t, a in parsed.tags if a.get("http-equiv"))
    assert policy is not None
    return policy


# ---- shown figures ----


def test_the_tables_hold_the_figures() -> None:
    report = gpt2_report()
    parsed = Parsed(page.render(report))
    modules = {row[0]: row for row in parsed.tables["Modules"]}
    head = parsed.tables["Modules"][0]
    assert head[:3] == ["module", "at the peak", "parameters"]
    block = [row for row in report["modules"] if row["module"].startswith("transformer.h.")]
    whole = dict(zip(head, modules["h"], strict=True))
    assert whole["ops"] == f"{sum(row['ops'] for row in block):,}"
    assert whole["time"] == format_ns(sum(row["op_ns"] for row in block))
    assert whole["replays"] == f"{sum(row['replays'] for row in block):,}"
    assert whole["cost of replays"] == format_ns(sum(row["replay_ns"] for row in block))
    assert whole["evictions"] == f"{sum(row['evictions'] for row in block):,}"
    assert whole["evicted"] == format_bytes(sum(row["evicted_bytes"] for row in block))
    held = [
        row["bytes"]
        for row in report["peak"]["rows"]
        if row["module"].startswith("transformer.h.") and row["kind"] == "activations"
    ]
    assert whole["activations"] == format_bytes(sum(held))
    assert [row[0] for row in parsed.tables["Peak"][1:]] == [
        "activations",
        "optimizer",
        "parameters",
        "inputs",
    ]
    assert parsed.tables["Pinned"][1:] == [
        ["the program", "activations", "786 MiB", "1"],
        ["non-recomputable", "parameters", "484 MiB", "150"],
    ]
    assert parsed.tables["Pinned, by op"][1:] == [
        ["the program", "activations", "aten::mm", "lm_head", "-", "786 MiB", "1"],
        [
            "non-recomputable",
            "parameters",
            "-",
            "(outside of any module)",
            "state that is updated in place",
            "475 MiB",
            "148",
        ],
        [
            "non-recomputable",
            "parameters",
            "aten::empty",
            "lm_head",
            "its memory is uninitialized",
            "9.0 MiB",
            "2",
        ],
    ]
    assert "3 rows, 1.2 GiB, by op and module" in parsed.texts["summary"]
    assert parsed.tables["Suggestions"][1:] == [
        ["5.1 GiB", "75.0 %", "1.01x", "5.4 GiB", "fits", ""],
        ["3.2 GiB", "50.0 %", "1.13x", "3.5 GiB", "fits", "knee: less memory costs much more time"],
        ["2.3 GiB", "36.0 %", "2.40x", "2.6 GiB", "fits", "least budget that works"],
        ["1.9 GiB", "28.0 %", "-", "-", "out of budget", ""],
    ]
    assert ["budget_bytes", "3,460,300,800 (3.2 GiB)"] in parsed.tables["setting"]
    assert ["kinetic", "False"] in parsed.tables["setting"]
    assert ["torch", "2.13.0"] in parsed.tables["version of"]
    assert ["evictions", f"{report['stats']['work']['evictions']:,}"] in parsed.tables["work"]


def test_the_head_has_the_main_figures() -> None:
    report = gpt2_report()
    parsed = Parsed(page.render(report))
    times = report["stats"]["time"]
    added = sum(times.get(name, 0) for name in ADDED_NS)
    peak, budget = report["peak"]["bytes"], report["stats"]["memory"]["budget_bytes"]
    assert parsed.texts["h1"] == [report["title"]]
    assert parsed.texts["code"][0] == "train.py --model gpt2 --batch 8 --note 'two words'"
    assert parsed.texts["dd"] == [
        format_bytes(peak),
        f"{100 * peak / budget:.1f} % of {format_bytes(budget)}",
        f"{1 + added / times['op_ns']:.2f}x",
        f"ops took {format_ns(times['op_ns'])}, recoup added {format_ns(added)}, mostly for "
        f"replay ({format_ns(times['replay_ns'])})",
        f"{report['stats']['work']['replays']:,}",
        f"{format_ns(times['replay_ns'])} in replays; {report['stats']['work']['evictions']:,} "
        f"evictions of {format_bytes(report['stats']['work']['evicted_bytes'])}",
    ]


def test_every_addition_is_a_counter_of_time() -> None:
    times = {field.name for field in dataclasses.fields(Stats) if field.name.endswith("_ns")}
    # The time of ops, other measures of the same work, and parts of the time of ops.
    others = {
        "allocator_ns",
        "replay_cost_ns",
        "spill_cost_ns",
        "copy_time_ns",
        "followed_expected_ns",
        "followed_cost_ns",
    }
    assert times - set(ADDED_NS) == {"op_ns", *others}
    assert set(ADDED_NS) <= times


def test_an_empty_report_gives_a_page() -> None:
    report = {**plain_report(), "pinned": []}
    parsed = Parsed(page.render(report))
    assert parsed.embedded() is None
    assert parsed.texts["dd"] == [
        "0 B",
        "without a budget",
        "-",
        "no ops were timed",
        "0",
        "0 evictions",
    ]
    paragraphs = parsed.texts["p"]
    assert "No step was recorded, so there is no chart." in paragraphs
    assert "No module ran an op or held memory." in paragraphs
    assert "Every value could be evicted." in paragraphs
    assert "Other budgets" not in parsed.texts["h2"]
    parsed = Parsed(page.render({**report, "step": empty_step(), "suggestions": []}))
    assert "No value was in memory in this step." in parsed.texts["p"]
    assert "No budgets were simulated." in parsed.texts["p"]
    assert parsed.texts["h2"][0] == "Memory over step 0, 0 ns"


def test_modules_are_a_tree_in_numeric_order() -> None:
    def row(module: str, ops: int) -> dict[str, Any]:
        counts = ("op_ns", "replays", "replay_ns", "evictions", "evicted_bytes")
        return {"module": module, "ops": ops, **dict.fromkeys(counts, 0)}

    rows = [row("h.10.a", 1), row("h.9", 2), row("", 4), row("h.9.b", 8), row("H", 16)]
    held = {"module": "h.2.c", "kind": "inputs", "bytes": 5, "values": 1}
    tree = module_tree(rows, [held, held])
    names = ["", "H", "h", "h.2", "h.2.c", "h.9", "h.9.b", "h.10", "h.10.a"]
    assert [module.name for module in tree] == names
    assert [module.counts["ops"] for module in tree] == [4, 16, 11, 0, 0, 10, 8, 1, 1]
    assert [module.depth for module in tree] == [0, 0, 0, 1, 2, 1, 2, 1, 2]
    assert [module.peak_bytes.get("inputs") for module in tree[2:5]] == [10, 10, 10]


def test_each_row_names_its_parent() -> None:
    rows = [a for t, a in Parsed(page.render(gpt2_report())).tags if t == "tr" and "data-id" in a]
    heads = iter(re.findall(r'<th scope="row" title="([^"]*)">', page.render(gpt2_report())))
    names = {row["data-id"]: next(heads) for row in rows}
    for row in rows:
        above = names[row["data-id"]].rpartition(".")[0]
        assert names.get(row.get("data-parent"), "") == above


# ---- isolation ----


def test_the_page_is_one_file_without_requests() -> None:
    text = page.render({**plain_report(), "step": empty_step()})
    parsed = Parsed(text)
    assert len(text.encode()) < 60_000
    for tag, attributes in parsed.tags:
        assert not {"src", "srcset", "action", "style"} & attributes.keys(), tag
        assert attributes.get("href", "data:,") == "data:,"
        assert not [name for name in attributes if name.startswith("on")]
    assert not re.search(r"https?:|@import|url\(|fetch\(|XMLHttp|eval\(|innerHTML", text)


def test_the_policy_allows_only_the_pages_own_script_and_style() -> None:
    parsed = Parsed(page.render(gpt2_report()))
    policy = dict(part.strip().split(" ", 1) for part in policy_of(parsed).split(";"))
    assert policy["default-src"] == "'none'"
    (style,), (_, script) = parsed.texts["style"], parsed.texts["script"]
    for name, text in (("style-src", style), ("script-src", script)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert policy[name] == f"'sha256-{digest}'"


@pytest.mark.parametrize("render", [page.render, page.render_fragment])
def test_untrusted_names_are_shown_as_text(render: Any) -> None:
    good, bad = Parsed(render(failed_report())), Parsed(render(evil_report()))
    counted = [{tag for tag, _ in parsed.tags} for parsed in (good, bad)]
    assert counted[0] == counted[1]
    assert "img" not in counted[1]
    names = [sorted({name for _, a in parsed.tags for name in a}) for parsed in (good, bad)]
    assert names[0] == names[1]
    assert len(bad.texts.get("script", [])) == len(good.texts.get("script", []))
    text = render(evil_report())
    assert text.encode().isascii() == render(failed_report()).encode().isascii()
    assert not set("\u2028\u202e\x00") & set(text)


def test_embedded_names_are_unchanged() -> None:
    text = page.render(evil_report())
    data = re.search(r'id="data">(.*?)</script>', text)
    assert data is not None and not set("<>&\u2028") & set(data[1])
    embedded = json.loads(data[1])
    shown = texts.visible(EVIL + ENDINGS)
    assert embedded["names"][0] == f"aten::embedding{shown}"
    assert html.unescape(texts.escape(EVIL)) == EVIL
    assert shown.endswith(r"""&amp;'"\u2028\u202e\udcff\x00\n""")


def test_a_setting_may_have_any_value() -> None:
    settings = {"a": EVIL, "b": None, "c": [1, "<b>"], "d": 1.5, "e_bytes": -5, "f": {"g": EVIL}}
    settings = {"low": 1.8e-07, "high": 1.8e20, **settings}
    parsed = Parsed(page.render({**plain_report(), "settings": settings}))
    values = [["low", "0.00000018"], ["high", "180,000,000,000,000,000,000"]]
    values += [["a", EVIL], ["b", "-"], ["c", "[1, '<b>']"], ["d", "1.5"], ["e_bytes", "-5"]]
    assert parsed.tables["setting"][1:-1] == values


# ---- the step ----


def test_the_step_is_embedded_in_columns() -> None:
    step = {
        **empty_step(),
        "begin_ns": 1000,
        "end_ns": 2000,
        "groups": [
            {"module": "a", "kind": "inputs", "op": "x"},
            {"module": "a", "kind": "other", "op": ""},
        ],
        # Unordered; beyond both ends; outside; of no bytes; of no duration.
        "spans": [
            [1500, 1600, 7, 1],
            [0, 5000, 3, 0],
            [0, 999, 9, 0],
            [2000, 2001, 9, 0],
            [1100, 1200, 0, 0],
            [1100, 1100, 9, 0],
        ],
        "charged": [[1700, 8], [5, 1], [900, 2], [2001, 9]],
        "budgets": [[0, 20], [1500, 10]],
        "events": [
            ["replay", 1900, 300, 1, "b", 1],
            ["op", 900, 150, 2, "a", 0],
            ["move", 1200, 0, 4, "b", -1],
            ["op", 2001, 1, 0, "late", 0],
            ["op", 1, 1, 0, "early", 0],
        ],
    }
    embedded = Parsed(page.render({**plain_report(), "step": step})).embedded()
    assert embedded["length"] == 1000
    assert (embedded["modules"], embedded["kinds"], embedded["ops"]) == (
        ["a"],
        ["inputs", "other"],
        ["x", ""],
    )
    assert embedded["groups"] == [[0, 0, 0], [0, 1, 1]]
    assert embedded["spans"] == [[0, 500], [1000, 100], [3, 7], [0, 1]]
    assert embedded["charged"] == [[0, 700], [2, 8]]
    assert embedded["budgets"] == [[0, 500], [20, 10]]
    kinds, *columns, names, groups = embedded["events"]
    assert kinds == [0, 5, 1]
    assert columns == [[0, 200, 700], [50, 0, 100], [2, 4, 1]]
    assert [embedded["names"][name] for name in names] == ["a", "b", "b"]
    assert groups == [0, -1, 1]


def test_the_still_picture_shows_the_highest_instant_of_each_column() -> None:
    """Compared with the values at every instant."""
    step = read_step(large_report(spans=300, events=0, charges=500)["step"])
    stacks, charges = sample(step, 40), column_highest(step.charged, step.length_ns, 40)
    order = list(KINDS)
    begin, end, size, group = step.spans.T
    kinds = np.array([order.index(step.groups[index]["kind"]) for index in group])
    for column in range(40):
        low, high = step.length_ns * column / 40, step.length_ns * (column + 1) / 40
        instants = [low, *(at for at in [*begin, *end] if low < at < high)]
        held = [(begin <= at) & (at < end) for at in instants]
        best = max(held, key=lambda alive: size[alive].sum())
        want = [size[best & (kinds == kind)].sum() for kind in range(len(order))]
        assert stacks[column].tolist() == want
        known = [(at, count) for at, count in step.charged if at < high]
        inside = [count for at, count in known if at > low]
        assert charges[column] == max([*inside, [count for at, count in known if at <= low][-1]])


def test_the_fragment_has_the_tables_and_a_picture_but_no_script() -> None:
    report = gpt2_report()
    text = page.render_fragment(report)
    parsed, whole = Parsed(text), Parsed(page.render(report))
    assert not {"script", "link", "meta", "canvas", "body", "html"} & {
        tag for tag, _ in parsed.tags
    }
    for name in ("Peak", "Peak, by module", "Pinned", "Suggestions"):
        assert parsed.tables[name] == whole.tables[name]
    assert parsed.tables["Modules"][1:4] == whole.tables["Modules"][1:4]
    left_out = len(whole.tables["Modules"]) - len(parsed.tables["Modules"])
    assert f"{left_out:,} more modules are not shown." in parsed.texts["p"]
    (style,) = parsed.texts["style"]
    for selectors in re.findall(r"^\s*([^@{}\n]+) \{", style, re.M):
        for selector in selectors.split(", "):
            assert selector.startswith(".recoup-page"), selector
    drawn = [a["fill"] for t, a in parsed.tags if t == "path" and str(a["d"]).endswith("Z")]
    kinds = {row["kind"] for row in report["step"]["groups"]}
    assert set(drawn) == {KINDS[kind] for kind in kinds}
    assert "svg" not in {tag for tag, _ in Parsed(page.render_fragment(plain_report())).tags}


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        (0, "no budget"),
        (1 << 40, "the budget, 1.0 TiB, is above the chart"),
        (3 << 30, "dashes: the budget, 3.0 GiB"),
    ],
)
def test_the_fragment_explains_the_line_of_the_budget(budget: int, said: str) -> None:
    report = large_report(spans=50, events=0)
    report["step"]["budget_bytes"] = budget
    report["step"]["charged"] = [[0, 2 << 30]]
    assert said in Parsed(page.render_fragment(report)).texts["li"]


def test_modules_have_the_colors_of_viridis() -> None:
    stops = matplotlib.colormaps["viridis"].resampled(len(VIRIDIS))
    assert [matplotlib.colors.to_hex(stops(index)) for index in range(len(VIRIDIS))] == list(
        VIRIDIS
    )


def test_rendering_does_not_change_the_report() -> None:
    report = gpt2_report()
    before = copy.deepcopy(report)
    page.render(report)
    page.render_fragment(report)
    assert report == before


def test_sizes_are_formatted_as_elsewhere() -> None:
    assert texts.value_text("peak_bytes", 3 * MIB) == "3,145,728 (3.0 MiB)"
    assert texts.value_text("op_ns", 1_250_000) == "1,250,000 (1.25 ms)"
    assert texts.value_text("replays", 1_250_000) == "1,250,000"


def test_the_depth_of_the_module_tree_is_limited() -> None:
    held = {"module": "a." * 1000 + "b", "kind": "inputs", "bytes": 5, "values": 1}
    tree = module_tree([], [held])
    assert [module.depth for module in tree] == list(range(31))
    assert tree[-1].name == held["module"] and tree[-1].label == "a." * 970 + "b"
    assert "data-parent" in page.render(
        {**plain_report(), "peak": {"bytes": 5, "non_tensor_bytes": 0, "rows": [held]}}
    )
