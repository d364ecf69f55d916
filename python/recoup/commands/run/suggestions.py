"""What `recoup suggest --json` found, for the page of a run."""

import json
from pathlib import Path
from typing import Any


def read_suggestions(file: Path) -> list[dict[str, Any]]:
    """Its budgets as rows of a page. Raises OSError, or ValueError when it is no such file."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        beside = found["beside_tensors_bytes"]
        marks = {
            found[mark]["budget_bytes"]: mark
            for mark in ("knee", "least")
            if found[mark] is not None
        }
        return [_row(each, beside, marks) for each in found["predictions"]]
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{file} is not a file of `recoup suggest --json`") from error


def _row(each: dict[str, Any], beside: int | None, marks: dict[int, str]) -> dict[str, Any]:
    is_ok = each["status"] == "ok"
    budget = int(each["budget_bytes"])
    return {
        "budget_bytes": budget,
        "share": min(float(each["share"]), 1.0),
        "time_ratio": each["time_ratio"] if is_ok else None,
        "rss_bytes": beside + budget if is_ok and beside is not None else None,
        "status": str(each["status"]),
        "mark": marks.get(budget, ""),
    }
