"""What happens in a run, moment by moment, and as a file for Perfetto."""

import dataclasses
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Literal

MomentKind = Literal["op", "replay", "evict", "spill", "fetch", "move", "step"]


@dataclasses.dataclass(frozen=True)
class Moment:
    """Something that happened in a run, live or simulated."""

    kind: MomentKind
    name: str
    """Of the op or the step; live, of the op that made what was evicted, spilled or moved."""
    start_ns: int
    """On the run's clock. A simulated one counts the cost of ops and replays. Live: its end, which
    is known, less its cost, but not below 0."""
    cost_ns: int
    """What the engine counts for an op or a replay; else 0. Live it is learned from ops of that
    kind, so what passed may be less or more: a moment can seem to begin before another ended."""
    charged_bytes: int
    """To the budget, right after it."""
    module: str = ""
    """Live: the module for which it was; empty: outside of all."""
    size_bytes: int = 0
    """Live: of what was evicted, spilled, fetched or moved."""


# The lines of a timeline, from above, and what is on each.
_LINES: dict[str, tuple[MomentKind, ...]] = {
    "program": ("op", "step"),
    "replays": ("replay",),
    "making room": ("evict", "move"),
    "spill tier": ("spill", "fetch"),
}
_LINE_OF = {kind: line for line, kinds in enumerate(_LINES.values(), 1) for kind in kinds}

# Perfetto shows JSON's escapes as they are written, and stops at a name that ends with a backslash.
_UNREADABLE = re.compile(r"[\x00-\x1f\\\ud800-\udfff]")


def chrome_json(moments: Sequence[Moment], budget_bytes: int) -> str:
    """The text of a file of `chrome_trace`, which is to be written as UTF-8."""
    return json.dumps(chrome_trace(moments, budget_bytes), ensure_ascii=False) + "\n"


def chrome_trace(moments: Sequence[Moment], budget_bytes: int) -> dict[str, Any]:
    """For Perfetto and chrome://tracing: the program's ops and the replays on a line each.

    Evictions, copies, moves and steps are marks; memory in use and what is left of the budget are
    counters, in bytes. Ops and replays are drawn one after the other, as they ran, each at most as
    long as it cost; `cost_ns` among its arguments is all of that. What Perfetto cannot read in a
    name (backslashes, control characters, halves of characters) becomes a replacement character.
    `moments` are in the order of `Run.timeline` and `Trace.timeline`.
    """
    used = {_LINE_OF[moment.kind] for moment in moments} | {1, 2}
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "recoup"}}
    ]
    events += [
        {"ph": "M", "pid": 1, "tid": tid, "name": "thread_name", "args": {"name": name}}
        for tid, name in enumerate(_LINES, 1)
        if tid in used
    ]
    for moment, start_ns, end_ns in _placed(moments):
        events.append(_event(moment, start_ns, end_ns))
        memory = {"bytes": moment.charged_bytes, "free": budget_bytes - moment.charged_bytes}
        events.append({"ph": "C", "pid": 1, "name": "memory", "ts": end_ns / 1e3, "args": memory})
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _placed(moments: Sequence[Moment]) -> Iterator[tuple[Moment, int, int]]:
    """Each with where it begins and ends in the drawing, in nanoseconds.

    Perfetto drops what begins within another and ends behind it, and draws what is within another,
    or has no length and begins with it, a row lower. So what costs more than the time since the
    last op or replay begins later, and what has no length takes a nanosecond from the next.
    """
    # One comes after the other, so none can end later than the next.
    ends = [moment.start_ns + moment.cost_ns for moment in moments]
    ends = list(accumulate(reversed(ends), min))[::-1]
    free_ns: defaultdict[int, int] = defaultdict(int)
    for moment, end_ns in zip(moments, ends, strict=True):
        works = moment.kind in ("op", "replay")
        row = 0 if works else _LINE_OF[moment.kind]  # the program waits for a replay: they share
        start_ns = max(moment.start_ns if works else end_ns, free_ns[row])
        end_ns = max(start_ns, end_ns)
        free_ns[row] = max(start_ns + 1, end_ns)
        yield moment, start_ns, end_ns


def _event(moment: Moment, start_ns: int, end_ns: int) -> dict[str, Any]:
    at = {"pid": 1, "tid": _LINE_OF[moment.kind], "ts": start_ns / 1e3}
    called = _readable(moment.name)
    if moment.kind == "step":
        return {"ph": "i", "s": "g", "name": called, **at}
    said: dict[str, Any] = {"module": _readable(moment.module)} if moment.module else {}
    if moment.kind in ("op", "replay"):
        said["cost_ns"] = moment.cost_ns
        duration = (end_ns - start_ns) / 1e3
        return {"ph": "X", "name": called, "dur": duration, **at, "args": said}
    if moment.size_bytes:
        said["bytes"] = moment.size_bytes
    name = f"{moment.kind} {called}" if called else moment.kind
    return {"ph": "i", "s": "t", "name": name, **at, **({"args": said} if said else {})}


def _readable(name: str) -> str:
    return _UNREADABLE.sub("\N{REPLACEMENT CHARACTER}", name)
