"""The step that a page draws, as columns: compact in JSON, and fast to process.

No row is left out or summed here: for any visible part of the step, the page's scripts find the
moment with the most bytes of each column of pixels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from recoup.page.palette import EVENTS
from recoup.page.texts import visible

Counts: TypeAlias = NDArray[np.int64]
_WHERE = "report['step']"


@dataclass(frozen=True)
class Step:
    """A step. Times are nanoseconds since it began; rows are clipped to the step."""

    length_ns: int
    budget_bytes: int
    groups: Sequence[Mapping[str, Any]]
    """Groups of values, each with module, kind and op."""
    spans: Counts
    """Rows of begin, end, bytes and group, by begin."""
    charged: Counts
    """Rows of time and bytes, by time."""
    budgets: Counts
    """Rows of time and budget in bytes, by time; a run may change its budget."""
    events: Counts
    """Rows of kind (of palette.EVENTS), begin, duration, bytes, name, and group or -1; by begin."""
    names: Sequence[str]
    """Names of events, by index."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON: tables of texts, and columns of numbers, with times as differences."""
        modules, kinds, ops = (_Names() for _ in range(3))
        groups = [
            [modules.index(row["module"]), kinds.index(row["kind"]), ops.index(row["op"])]
            for row in self.groups
        ]
        begin, end, size, group = self.spans.T
        kind, event_begin, duration, event_size, name, event_group = self.events.T
        return {
            "length": self.length_ns,
            "budget": self.budget_bytes,
            "modules": modules.visible(),
            "kinds": kinds.visible(),
            "ops": ops.visible(),
            "groups": groups,
            "names": list(self.names),
            "spans": [_differences(begin), (end - begin).tolist(), size.tolist(), group.tolist()],
            "charged": _line(self.charged),
            "budgets": _line(self.budgets),
            "events": [
                kind.tolist(),
                _differences(event_begin),
                duration.tolist(),
                event_size.tolist(),
                name.tolist(),
                event_group.tolist(),
            ],
        }


class _Names:
    """Distinct texts with their indices."""

    def __init__(self) -> None:
        self._indices: dict[str, int] = {}

    def visible(self) -> list[str]:
        return [visible(text) for text in self._indices]

    def index(self, text: str) -> int:
        return self._indices.setdefault(text, len(self._indices))


def read_step(step: Mapping[str, Any]) -> Step:
    """Parses the step of a report that has passed `shape.check`.

    Raises ValueError or TypeError for invalid rows.
    """
    begin_ns, length_ns = step["begin_ns"], step["end_ns"] - step["begin_ns"]
    if length_ns < 0:
        raise ValueError(f"{_WHERE} must not end before it begins")
    groups = step["groups"]
    names = _Names()
    return Step(
        length_ns=length_ns,
        budget_bytes=step["budget_bytes"],
        groups=groups,
        spans=_read_spans(step["spans"], begin_ns, length_ns, len(groups)),
        charged=_read_line(step["charged"], "charged", begin_ns, length_ns),
        budgets=_read_line(
            step["budgets"] or _constant(step["budget_bytes"]), "budgets", begin_ns, length_ns
        ),
        events=_read_events(step["events"], begin_ns, length_ns, len(groups), names),
        names=names.visible(),
    )


def _read_spans(rows: Sequence[Any], begin_ns: int, length_ns: int, groups: int) -> Counts:
    spans = _table(rows, ("begin_ns", "end_ns", "bytes", "group"), "spans")
    _check_groups(spans[:, 3], 0, groups, "spans")
    if (spans[:, 0] > spans[:, 1]).any():
        raise ValueError(f"{_WHERE}['spans'] must not end before they begin")
    spans[:, :2] = (spans[:, :2] - begin_ns).clip(0, length_ns)
    spans = spans[(spans[:, 0] < spans[:, 1]) & (spans[:, 2] > 0)]
    return spans[np.argsort(spans[:, 0], kind="stable")]


def _constant(budget_bytes: int) -> list[list[int]]:
    return [[0, budget_bytes]] if budget_bytes else []


def _read_line(rows: Sequence[Any], what: str, begin_ns: int, length_ns: int) -> Counts:
    line = _table(rows, ("t_ns", "bytes"), what)
    line = line[np.argsort(line[:, 0], kind="stable")]
    line[:, 0] -= begin_ns
    before = np.searchsorted(line[:, 0], 0, side="right")
    line = line[max(0, before - 1) :]  # the last of the earlier rows has the initial value
    line[:, 0] = line[:, 0].clip(0)
    return line[line[:, 0] <= length_ns]


def _read_events(
    rows: Sequence[Any], begin_ns: int, length_ns: int, groups: int, names: _Names
) -> Counts:
    columns = ("kind", "t_ns", "duration_ns", "bytes", "name", "group")
    kinds = {kind: index for index, kind in enumerate(EVENTS)}
    numbers = []
    for row in rows:
        if not isinstance(row, Sequence) or len(row) != len(columns):
            raise TypeError(f"{_WHERE}['events'] must be rows of {', '.join(columns)}; got {row!r}")
        kind, begin, duration, size, name, group = row
        if not (isinstance(kind, str) and kind in kinds and isinstance(name, str)):
            raise ValueError(
                f"{_WHERE}['events'] must have a kind of {', '.join(kinds)} and a name; got {row!r}"
            )
        numbers.append((kinds[kind], begin, duration, size, names.index(name), group))
    events = _table(numbers, columns, "events")
    _check_groups(events[:, 5], -1, groups, "events")
    events[:, 1] -= begin_ns
    events = events[(events[:, 1] + events[:, 2] >= 0) & (events[:, 1] <= length_ns)]
    end = (events[:, 1] + events[:, 2]).clip(0, length_ns)
    events[:, 1] = events[:, 1].clip(0)
    events[:, 2] = end - events[:, 1]
    return events[np.argsort(events[:, 1], kind="stable")]


def _table(rows: Sequence[Any], columns: Sequence[str], what: str) -> Counts:
    wanted = f"{_WHERE}[{what!r}] must be rows of {', '.join(columns)}"
    if not rows:
        return np.empty((0, len(columns)), np.int64)
    try:
        found = np.asarray(rows)
    except ValueError:  # rows of different lengths
        raise TypeError(wanted) from None
    if found.ndim != 2 or found.shape[1] != len(columns):
        raise TypeError(wanted)
    if found.dtype != np.int64:
        raise TypeError(f"{wanted}, all whole numbers of at most 63 bits")
    counts = found[:, :-1] if columns[-1] == "group" else found
    if (counts < 0).any():
        raise ValueError(f"{wanted}, all 0 or more")
    return found.copy()


def _check_groups(found: Counts, least: int, groups: int, what: str) -> None:
    wrong = found[(found < least) | (found >= groups)]
    if wrong.size:
        raise ValueError(
            f"{_WHERE}[{what!r}] must name one of the {groups} groups by its index; got {wrong[0]}"
        )


def _line(line: Counts) -> list[list[int]]:
    return [_differences(line[:, 0]), line[:, 1].tolist()]


def _differences(times: Counts) -> list[int]:
    differences: list[int] = np.diff(times, prepend=0).tolist()
    return differences
