"""The events of a run, and their file for Perfetto."""

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
    """One event of a run, live or simulated."""

    kind: MomentKind
    """What happened: "op", "replay", "evict", "spill", "fetch", "move" or "step"."""
    name: str
    """Name of the op or step; of an evicted, spilled or moved value, the op that made it (live)."""
    start_ns: int
    """Start on the run's clock, in nanoseconds. The clock of a simulated run advances by the costs
    of ops and replays. Of a live run: the measured end less the cost, at least 0."""
    cost_ns: int
    """Cost of an op or a replay as the engine counts it, in nanoseconds; 0 for other kinds. Of a
    live run it is learned from ops of the same kind, and the actual duration may differ: an event
    can seem to start before another one ended."""
    charged_bytes: int
    """Bytes charged to the budget right after the event."""
    module: str = ""
    """Live: the module to which the event is attributed; empty: no module."""
    size_bytes: int = 0
    """Live: bytes that were evicted, spilled, fetched or moved."""


# The rows of a timeline from top to bottom, and the kinds of events on each.
_LINES: dict[str, tuple[MomentKind, ...]] = {
    "program": ("op", "step"),
    "replays": ("replay",),
    "making room": ("evict", "move"),
    "spill tier": ("spill", "fetch"),
}
_LINE_OF = {kind: line for line, kinds in enumerate(_LINES.values(), 1) for kind in kinds}

# Perfetto shows JSON escapes literally, and stops at a name that ends with a backslash.
_UNREADABLE = re.compile(r"[\x00-\x1f\\\ud800-\udfff]")


def chrome_json(moments: Sequence[Moment], budget_bytes: int) -> str:
    """The text of a file of `chrome_trace`; write it as UTF-8."""
    return json.dumps(chrome_trace(moments, budget_bytes), ensure_ascii=False) + "\n"


def chrome_trace(moments: Sequence[Moment], budget_bytes: int) -> dict[str, Any]:
    """A trace for Perfetto and chrome://tracing, with the program's ops and the replays as rows.

    Evictions, copies, moves and steps are marks; used and free bytes of the budget are counters.
    Ops and replays are drawn in the order in which they ran, without overlap, and each at most as
    long as its cost; the argument `cost_ns` has the full cost. Characters that Perfetto cannot read
    in a name (backslashes, control characters, surrogates) become replacement characters.
    `moments`: events in the order of `Run.timeline` and `Trace.timeline`.
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
    """Each event with its start and end in the drawing, in nanoseconds.

    Perfetto drops an event that starts within another one and ends after it. It draws an event one
    row lower if it is within another one, or has no length and starts with it. So an event that
    costs more than the time since the last op or replay starts later, and one without length takes
    a nanosecond from the next.
    """
    # Events are sequential, so none can end later than the next.
    ends = [moment.start_ns + moment.cost_ns for moment in moments]
    ends = list(accumulate(reversed(ends), min))[::-1]
    free_ns: defaultdict[int, int] = defaultdict(int)
    for moment, end_ns in zip(moments, ends, strict=True):
        works = moment.kind in ("op", "replay")
        row = 0 if works else _LINE_OF[moment.kind]  # program and replays share: one runs at a time
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
