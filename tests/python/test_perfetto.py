"""Perfetto shows a timeline as what happened: its own trace processor is asked.

Skipped where there is none.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recoup.moments import Moment, MomentKind, chrome_json
from trace_processor import TraceProcessor, trace_processor

SLICES = """
    SELECT thread.name AS line, slice.name, slice.ts, slice.dur, depth,
        extract_arg(arg_set_id, 'args.cost_ns') AS cost,
        extract_arg(arg_set_id, 'args.module') AS module,
        extract_arg(arg_set_id, 'args.bytes') AS bytes
    FROM slice JOIN thread_track ON track_id = thread_track.id JOIN thread USING (utid)
    ORDER BY slice.ts, slice.id"""
STEPS = """
    SELECT slice.name, slice.ts FROM slice JOIN track ON track_id = track.id
    WHERE track.type = 'legacy_chrome_global_instants' ORDER BY slice.ts"""
LOST = """
    SELECT name, value FROM stats WHERE severity IN ('error', 'data_loss') AND value != 0"""


@pytest.fixture(scope="module")
def perfetto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TraceProcessor]:
    with trace_processor(tmp_path_factory.mktemp("perfetto")) as opened:
        yield opened


def load(perfetto: TraceProcessor, folder: Path, trace: str) -> None:
    file = folder / "timeline.json"
    file.write_text(trace, encoding="utf-8")
    perfetto.load(file)


def lines(perfetto: TraceProcessor) -> dict[str, list[tuple[Any, ...]]]:
    """By the name of the line: name, start, duration, cost, module and bytes of what is on it.

    Nothing was lost, and nothing is drawn within another.
    """
    assert perfetto.rows(LOST) == []
    found: dict[str, list[tuple[Any, ...]]] = {}
    for line, name, start, duration, depth, *said in perfetto.rows(SLICES):
        assert depth == 0, (line, name, start)
        found.setdefault(line, []).append((name, start, duration, *said))
    return found


KINDS: tuple[MomentKind, ...] = ("op", "replay", "evict", "move", "spill", "fetch", "step")


def test_what_perfetto_would_drop_is_told(perfetto: TraceProcessor, tmp_path: Path) -> None:
    """Else the tests above would show nothing."""
    crossing = [
        {"ph": "X", "pid": 1, "tid": 1, "name": "a", "ts": 1.5, "dur": 2.25},
        {"ph": "X", "pid": 1, "tid": 1, "name": "b", "ts": 3, "dur": 2.25},
    ]
    load(perfetto, tmp_path, json.dumps({"traceEvents": crossing}))
    assert perfetto.rows(LOST) == [("slice_drop_overlapping_complete_event", 1)]
    assert perfetto.rows("SELECT name, ts, dur FROM slice") == [("a", 1500, 2250)]


READ = ['"', 'a"', "</script>", "{}", "größe", "\N{SNOWMAN}", "\N{FIRE}", "\x7f", "x" * 9999]
UNREAD = {"a\\": "a?", "\\u0041": "?u0041", "a\nb": "a?b", "\0": "?", "\ud800": "?"}


@pytest.mark.parametrize("kind", KINDS)
def test_names_are_read(perfetto: TraceProcessor, tmp_path: Path, kind: MomentKind) -> None:
    names = [*READ, *UNREAD]
    shown = [*READ, *(each.replace("?", "\N{REPLACEMENT CHARACTER}") for each in UNREAD.values())]
    cost = int(kind in ("op", "replay"))
    moments = [Moment(kind, name, i, cost, 0, module=name) for i, name in enumerate(names)]
    load(perfetto, tmp_path, chrome_json(moments, 1))
    if kind == "step":
        assert perfetto.rows(LOST) == []
        assert [name for name, _ in perfetto.rows(STEPS)] == shown
        return
    (drawn,) = lines(perfetto).values()
    before = "" if cost else f"{kind} "
    assert [name for name, *_ in drawn] == [(before + name).strip() for name in shown]
    assert [module or "" for *_, module, _ in drawn] == shown


def test_days_are_exact_to_a_nanosecond(perfetto: TraceProcessor, tmp_path: Path) -> None:
    month = 30 * 24 * 3600 * 10**9
    moments = [Moment("op", "a", month + 7 * number, 7, 0) for number in range(1000)]
    load(perfetto, tmp_path, chrome_json(moments, 1))
    drawn = lines(perfetto)["program"]
    assert [row[1:3] for row in drawn] == [(each.start_ns, 7) for each in moments]


def test_a_run_of_nothing_opens(perfetto: TraceProcessor, tmp_path: Path) -> None:
    load(perfetto, tmp_path, chrome_json([], 1))
    assert lines(perfetto) == {}
    assert perfetto.rows("SELECT name FROM thread WHERE tid > 0") == [("program",), ("replays",)]
