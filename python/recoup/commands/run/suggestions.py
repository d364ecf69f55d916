"""Reads the budgets of `recoup suggest --json` for the page of a run."""

import json
from pathlib import Path
from typing import Any


def read_suggestions(file: Path) -> list[dict[str, Any]]:
    """Returns the budgets as rows of a page. Raises OSError, or ValueError for another file."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        other_bytes = found["other_resident_bytes"]
        marks = {
            found[mark]["budget_bytes"]: mark
            for mark in ("knee", "least")
            if found[mark] is not None
        }
        return [_row(each, other_bytes, marks) for each in found["predictions"]]
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"{file} was not written by `recoup suggest --json` of this version"
        ) from error


def _row(each: dict[str, Any], other_bytes: int | None, marks: dict[int, str]) -> dict[str, Any]:
    is_ok = each["status"] == "ok"
    budget = int(each["budget_bytes"])
    return {
        "budget_bytes": budget,
        "fraction": min(float(each["fraction"]), 1.0),
        "time_ratio": each["time_ratio"] if is_ok else None,
        "rss_bytes": other_bytes + budget if is_ok and other_bytes is not None else None,
        "status": str(each["status"]),
        "mark": marks.get(budget, ""),
    }
