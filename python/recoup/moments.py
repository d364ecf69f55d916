"""What happens in a run, moment by moment, and as a file for Perfetto."""

import dataclasses
import json
import re
from collections.abc import Sequence
from typing import Any, Literal

MomentKind = Literal["op", "replay", "evict", "spill", "fetch", "move", "step"]


@dataclasses.dataclass(frozen=True)
class Moment:
    """Something that happened in a run, live or simulated."""

    kind: MomentKind
    name: str
    """Of the op or the step; live, of the op that made what was evicted, spilled or moved."""
    start_ns: int
    """On the run's clock. A simulated one counts the cost of ops and replays."""
    cost_ns: int
    """Of an op and a replay what it took; else 0."""
    charged_bytes: int
    """To the budget, right after it."""
    module: str = ""
    """Live: the module for which it was; empty: outside of all."""
    size_bytes: int = 0
    """Live: of what was evicted, spilled, fetched or moved."""


# The lines of a timeline: its number and what it is called.
_LINES = {"program": 1, "replays": 2, "second tier": 3}
_LINE_OF = {
    "op": 1,
    "step": 1,
    "replay": 2,
    "evict": 2,
    "move": 2,
    "spill": 3,
    "fetch": 3,
}

# Perfetto shows JSON's escapes as they are written, and stops at a name that ends with a backslash.
_UNREADABLE = re.compile(r"[\x00-\x1f\\\ud800-\udfff]")


def chrome_json(moments: Sequence[Moment], budget_bytes: int) -> str:
    """The text of a file of `chrome_trace`, which is to be written as UTF-8."""
    return json.dumps(chrome_trace(moments, budget_bytes), ensure_ascii=False) + "\n"


def chrome_trace(moments: Sequence[Moment], budget_bytes: int) -> dict[str, Any]:
    """For chrome://tracing and Perfetto: the program's ops and the replays on a line each.

    Evictions, copies, moves and steps are marks; memory in use and what is left of the budget are
    counters. What Perfetto cannot read in a name (backslashes, control characters, halves of
    characters) becomes a replacement character.
    """
    used = {_LINE_OF[moment.kind] for moment in moments} | {1, 2}
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 1, "tid": tid, "name": "thread_name", "args": {"name": name}}
        for name, tid in _LINES.items()
        if tid in used
    ]
    for moment in moments:
        events.append(_event(moment))
        memory = {"bytes": moment.charged_bytes, "free": budget_bytes - moment.charged_bytes}
        end = (moment.start_ns + moment.cost_ns) / 1e3
        events.append({"ph": "C", "pid": 1, "name": "memory", "ts": end, "args": memory})
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _event(moment: Moment) -> dict[str, Any]:
    at = {"pid": 1, "tid": _LINE_OF[moment.kind], "ts": moment.start_ns / 1e3}
    name = _readable(moment.name)
    said: dict[str, Any] = {}
    if moment.module:
        said["module"] = _readable(moment.module)
    if moment.size_bytes:
        said["bytes"] = moment.size_bytes
    about = {"args": said} if said else {}
    if moment.kind in ("op", "replay"):
        return {"ph": "X", "name": name, "dur": moment.cost_ns / 1e3, **at, **about}
    if moment.kind == "step":
        return {"ph": "i", "s": "g", "name": name, **at}
    said_name = f"{moment.kind} {name}" if name else moment.kind
    return {"ph": "i", "s": "t", "name": said_name, **at, **about}


def _readable(name: str) -> str:
    return _UNREADABLE.sub("\N{REPLACEMENT CHARACTER}", name)
