"""Perfetto reads a timeline: its own trace processor is asked.

Skipped where there is none.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from trace_processor import TraceProcessor, trace_processor

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


def test_what_perfetto_would_drop_is_told(perfetto: TraceProcessor, tmp_path: Path) -> None:
    """Else a query that finds nothing lost would show nothing."""
    crossing = [
        {"ph": "X", "pid": 1, "tid": 1, "name": "a", "ts": 1.5, "dur": 2.25},
        {"ph": "X", "pid": 1, "tid": 1, "name": "b", "ts": 3, "dur": 2.25},
    ]
    load(perfetto, tmp_path, json.dumps({"traceEvents": crossing}))
    assert perfetto.rows(LOST) == [("slice_drop_overlapping_complete_event", 1)]
    assert perfetto.rows("SELECT name, ts, dur FROM slice") == [("a", 1500, 2250)]
