"""The required shape of a report. Other reports are refused before anything is drawn."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recoup.page.palette import KINDS


@dataclass(frozen=True)
class Each:
    """A mapping from any names to values of one shape."""

    value: Any


@dataclass(frozen=True)
class OrNone:
    """The shape, or None."""

    shape: Any


@dataclass(frozen=True)
class OneOf:
    """One of a few texts."""

    texts: Sequence[str]


_KIND = OneOf(list(KINDS))
_HOLDERS = [{"module": str, "kind": _KIND, "bytes": int, "values": int}]
# A type stands for itself, int for a count from 0 and float for any number; a dict for a mapping
# with at least these keys; a list for a sequence of any length; object for any value.
REPORT = {
    "title": str,
    "command": [str],
    "versions": Each(str),
    "settings": Each(object),
    "wall_ns": int,
    "device": str,
    "stats": Each(Each(int)),
    "budget_changes": [
        {
            "start_ns": int,
            "before_bytes": int,
            "after_bytes": int,
            "free_bytes": int,
            "source": str,
        }
    ],
    "shared_budget": OrNone(
        {
            "total_bytes": int,
            "most_bytes": int,
            "waits": int,
            "wait_ns": int,
            "parts": [object],
        }
    ),
    "failures": [
        {
            "where": OneOf(["body", "exit"]),
            "type": str,
            "message": str,
            "op": str,
            "module": str,
            "figures": Each(int),
            "help": [str],
            "charged_bytes": int,
            "rows": OrNone(_HOLDERS),
        }
    ],
    "step_ratio": OrNone({"step_ns": int, "steps": int, "plain_step_ns": int, "plain_steps": int}),
    "peak": {"bytes": int, "non_tensor_bytes": int, "rows": _HOLDERS},
    "modules": [
        {
            "module": str,
            "ops": int,
            "op_ns": int,
            "replays": int,
            "replay_ns": int,
            "evictions": int,
            "evicted_bytes": int,
        }
    ],
    "pinned": [
        {
            "bytes": int,
            "values": int,
            "by": str,
            "kind": OneOf([*KINDS, ""]),
            "op": str,
            "module": str,
        }
    ],
    # Spans, charges and events have many rows: recoup.page.steps checks them.
    "step": OrNone(
        {
            "name": str,
            "number": int,
            "begin_ns": int,
            "end_ns": int,
            "budget_bytes": int,
            "groups": [{"module": str, "kind": _KIND, "op": str}],
            "spans": [object],
            "charged": [object],
            "budgets": [object],
            "events": [object],
            "cut": bool,
        }
    ),
    "suggestions": OrNone(
        [
            {
                "budget_bytes": int,
                "fraction": float,
                "time_ratio": OrNone(float),
                "rss_bytes": OrNone(int),
                "status": str,
                "mark": str,
            }
        ]
    ),
}


def check(value: object, shape: Any = REPORT, where: str = "report") -> None:
    """Raises TypeError or ValueError that says where `value` has another shape."""
    match shape:
        case OrNone():
            if value is not None:
                check(value, shape.shape, where)
        case OneOf():
            if value not in shape.texts:
                allowed = ", ".join(shape.texts)
                raise ValueError(f"{where} must be one of {allowed}; got {value!r}")
        case dict() | Each():
            _check_mapping(value, shape, where)
        case [item]:
            if isinstance(value, str) or not isinstance(value, Sequence):
                raise TypeError(f"{where} must be a sequence; got {type(value).__name__}")
            if item is not object:
                for index, element in enumerate(value):
                    check(element, item, f"{where}[{index}]")
        case _:
            _check_plain(value, shape, where)


def _check_mapping(value: object, shape: "dict[str, Any] | Each", where: str) -> None:
    if not isinstance(value, Mapping):
        raise TypeError(f"{where} must be a mapping; got {type(value).__name__}")
    if isinstance(shape, Each):
        shapes = dict.fromkeys(value, shape.value)
    else:
        shapes = shape
        if missing := [key for key in shape if key not in value]:
            raise ValueError(f"{where} must have {', '.join(map(repr, missing))}")
    for key, inner in shapes.items():
        if not isinstance(key, str):
            raise TypeError(f"{where} must have names as keys; got {key!r}")
        check(value[key], inner, f"{where}[{key!r}]")


def _check_plain(value: object, shape: type, where: str) -> None:
    if shape is float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise TypeError(f"{where} must be a number; got {type(value).__name__}")
        if not math.isfinite(value):
            raise ValueError(f"{where} must be finite; got {value}")
    elif shape is int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{where} must be a whole number; got {type(value).__name__}")
        if value < 0:
            raise ValueError(f"{where} must be 0 or more; got {value}")
    elif not isinstance(value, shape):
        raise TypeError(f"{where} must be {shape.__name__}; got {type(value).__name__}")
