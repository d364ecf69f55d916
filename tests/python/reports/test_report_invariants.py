"""Timeline, tables, cards, JSON and page agree, whatever a program does and however it ends."""

import html
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

import recoup
from chromium import Browser, browser
from recoup import page
from recoup._memory.sizes import format_bytes
from recoup._reporting.page_data import page_data
from recoup._reporting.report import format_ns
from report_programs import OnPurposeError, Outcome, Program

SEEDS = range(42)
GREEDY = "aten::repeat"  # the op by which programs allocate too much


def outcome_of(seed: int) -> Outcome:
    """Runs in a budget that needs evictions; programs that allocate too much run in any budget."""
    program = Program(seed)
    needed = Program(seed).run("64MiB").run.stats().peak_bytes
    fraction = (1.0, 0.7, 0.5)[seed % 3]
    least = 1 << 16
    for shrunk in (fraction, 0.6, 0.8, 1.0, 2.0):
        outcome = program.run(max(least, int(needed * shrunk)), fraction)
        error = outcome.error
        refused = isinstance(error, recoup.OutOfBudgetError)
        wanted = program.ending == "exit" or GREEDY in getattr(error, "op", "")
        if not refused or wanted:
            break
        program = Program(seed)  # it needs more to reach its end
    return outcome


@pytest.fixture(scope="module", params=SEEDS)
def outcome(request: pytest.FixtureRequest) -> Outcome:
    return outcome_of(request.param)


@pytest.fixture(scope="module")
def report(outcome: Outcome) -> dict[str, Any]:
    """The report as a file contains it."""
    written: dict[str, Any] = json.loads(json.dumps(page_data(outcome.run)))
    return written


def instants(
    spans: Sequence[Sequence[int]], *lines: Sequence[Sequence[int]]
) -> Iterator[tuple[int, list[int]]]:
    """Each instant with a change: the total size of the spans, and the value of each line."""
    changes: list[tuple[int, int, int]] = []
    for begin, end, size, *_ in spans:
        changes += [(begin, 0, size), (end, 0, -size)]
    for number, line in enumerate(lines, 1):
        changes += [(at, number, size) for at, size in line]
    # Of several points of a line at one instant, the last one counts.
    changes.sort(key=lambda change: change[:1])
    now = [0] + [-1] * len(lines)
    for index, (at, number, size) in enumerate(changes):
        now[number] = now[0] + size if number == 0 else size
        if index + 1 == len(changes) or changes[index + 1][0] > at:
            yield at, list(now)


def check_step(spans: Any, charged: Any, budgets: Any, end: int) -> int:
    """Checks spans <= charged <= budget at every instant; returns the most charged bytes."""
    most = 0
    for at, (stack, charge, budget) in instants(spans, charged, budgets):
        if at < end:
            assert 0 <= stack <= charge <= budget, at
            most = max(most, charge)
    return most


def test_every_instant_of_the_timeline_is_within_the_budget(outcome: Outcome) -> None:
    run, stats = outcome.run, outcome.run.stats()
    moments = run.timeline()
    kinds = Counter(moment.kind for moment in moments)
    assert (kinds["op"], kinds["replay"]) == (stats.op_count, stats.replays)
    assert kinds["evict"] == stats.evictions
    assert kinds["fetch"] == stats.fetches
    assert sum(each.size_bytes for each in moments if each.kind == "evict") == stats.evicted_bytes
    assert all(each.charged_bytes <= stats.peak_bytes for each in moments)
    assert stats.peak_bytes <= max(outcome.budgets)
    named = run.attribution()
    assert named is not None and named.step is not None
    step = named.step
    assert not step["cut"]
    most = check_step(step["spans"], step["charged"], step["budgets"], step["end_ns"])
    assert most <= stats.peak_bytes
    if step["number"] == 0 and not step["name"] and not run.failures():
        assert most == stats.peak_bytes  # there is no other step


def test_holders_and_work_add_up_to_the_counters(outcome: Outcome) -> None:
    run, stats = outcome.run, outcome.run.stats()
    for each in (False, True):
        rows = run.holders(each=each)
        assert sum(row.bytes for row in rows) == stats.peak_bytes
        sizes = [row.bytes for row in rows]
        assert sizes == sorted(sizes, reverse=True)
    work = run.work()
    wanted = {
        "ops": stats.op_count,
        "op_ns": stats.op_ns,
        "replays": stats.replays,
        "replay_ns": stats.replay_cost_ns,
        "evictions": stats.evictions,
        "evicted_bytes": stats.evicted_bytes,
    }
    assert {name: sum(getattr(row, name) for row in work) for name in wanted} == wanted


def test_the_failure_in_the_report_is_that_of_the_program(outcome: Outcome) -> None:
    failures, error = outcome.run.failures(), outcome.error
    body = next((each for each in failures if each.where == "body"), None)
    if error is None:
        assert failures == []
        return
    if outcome.ending == "exit":
        assert [each.where for each in failures] == ["exit"]
        (body,) = failures
    assert body is not None
    assert body.type.rpartition(".")[2] == type(error).__name__
    assert body.message == next(iter(str(error).splitlines()), "")
    if isinstance(error, OnPurposeError):
        assert "more lines" not in body.message
    if not isinstance(error, recoup.OutOfBudgetError):
        assert (body.figures, body.rows, body.step) == ({}, None, None)
        return
    assert body.op == error.op
    assert body.figures == {name: getattr(error, name) for name in body.figures}
    assert body.figures["asked_bytes"] > 0
    assert body.rows is not None
    assert sum(row.bytes for row in body.rows) == body.charged_bytes
    assert body.charged_bytes <= body.figures["budget_bytes"]
    assert body.help
    if outcome.ending == "memory":
        assert body.module.isdecimal()
        assert GREEDY in body.op
    assert body.step is not None
    spans, end = body.step["spans"], body.step["end_ns"]
    assert body.step["charged"][-1][1] == body.charged_bytes
    held = sum(row.bytes for row in body.rows if row.kind not in ("workspace", "other"))
    assert sum(span[2] for span in spans if span[1] == end) == held


def texts_of(text: str) -> str:
    """The visible text of the page."""
    text = re.sub(r"<(script|style|title)\b.*?</\1>", " ", text, flags=re.S)
    return html.unescape(re.sub(r"<[^>]*>", "\n", text))


def cards_of(text: str) -> list[str]:
    found = re.findall(r"<dd>(.*?)</dd>", text, flags=re.S)
    return [html.unescape(each) for each in found[::2]]


def test_cards_tables_json_and_counters_are_equal(outcome: Outcome, report: Any) -> None:
    stats = outcome.run.stats()
    assert report["stats"] == json.loads(json.dumps(stats.to_groups()))
    assert report["peak"]["bytes"] == stats.peak_bytes
    assert sum(row["bytes"] for row in report["peak"]["rows"]) == stats.peak_bytes
    assert sum(row["replays"] for row in report["modules"]) == stats.replays
    assert report["failures"] == [
        json.loads(json.dumps(failure.to_dict())) for failure in outcome.run.failures()
    ]
    text = page.render(report)
    peak, _, replays = cards_of(text)
    assert peak == format_bytes(stats.peak_bytes)
    assert replays == f"{stats.replays:,}"
    said = texts_of(text)
    assert not re.search(r"\d[eE][+-]?\d", said.replace(outcome.run.settings()["policy"], ""))
    assert f"{stats.evictions:,} evictions" in said
    if stats.op_ns:
        assert f"ops took {format_ns(stats.op_ns)}, " in said
    assert ("How it failed" in said) == bool(report["failures"])
    for failure in report["failures"]:
        assert failure["message"] in said and failure["type"] in said
        for size in filter(None, failure["figures"].values()):
            assert format_bytes(size) in said


def test_the_step_on_the_page_is_within_the_budget(outcome: Outcome, report: Any) -> None:
    data = re.search(r'id="data">(.*?)</script>', page.render(report))
    assert data is not None
    step = json.loads(data[1])
    begin, length, size, group = step["spans"]
    spans = [
        (at, at + lasts, held, of)
        for at, lasts, held, of in zip(accumulate(begin), length, size, group, strict=True)
    ]
    charged, budgets = (
        list(zip(accumulate(step[name][0]), step[name][1], strict=True))
        for name in ("charged", "budgets")
    )
    assert check_step(spans, charged, budgets, step["length"]) <= outcome.run.stats().peak_bytes


# ---- in Chromium ----


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


LEGEND = "[...document.querySelectorAll('#legend-rows li')].map((row) => row.dataset.bytes)"
COLUMNS = """(() => {
    const step = decodeStep(embedded);
    const series = moduleSeries(step, 1);
    const [count, width] = [series.names.length, 300];
    const { totals } = sweep(step, series.of, count, 0, step.length, width);
    const charged = sweepLine(step.charged, 0, step.length, width);
    const budgets = sweepLine(step.budgets, 0, step.length, width);
    return totals.every((total, i) => total <= charged[i] && charged[i] <= budgets[i]);
})()"""


@pytest.mark.parametrize("seed", range(7))
@pytest.mark.parametrize("width", [360, 500, 1200])
def test_the_page_in_a_browser_is_within_the_budget(
    chromium: Browser, tmp_path: Path, seed: int, width: int
) -> None:
    outcome = outcome_of(seed)
    stats = outcome.run.stats()
    file = tmp_path / "page.html"
    file.write_text(outcome.run.page(), encoding="utf-8")
    chromium.open(file, width=width)
    assert chromium.messages == []
    wide = chromium.value("document.documentElement.scrollWidth")
    assert wide <= width
    cards = chromium.value(
        "[...document.querySelectorAll('.figures dt + dd')].map((at) => at.innerText)"
    )
    assert cards[0] == format_bytes(stats.peak_bytes)
    assert cards[2] == f"{stats.replays:,}"
    assert chromium.value(COLUMNS)
    shown = chromium.value("document.getElementById('failure')?.checkVisibility() ?? false")
    assert shown == bool(outcome.run.failures())
    for failure in outcome.run.failures():
        assert failure.type in chromium.text("#failure")
    title = chromium.text("#legend-title")
    assert title == "The most bytes of each in the step; largest first"
    for mode in ("module", "kind"):
        chromium.click(f"[name=mode][value={mode}]")
        sizes = [int(size) for size in chromium.value(LEGEND) if size is not None]
        assert sizes == sorted(sizes, reverse=True)
