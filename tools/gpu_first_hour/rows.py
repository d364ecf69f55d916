"""Reports of a check: rows in a file, which survive any end of the process.

A row has a name, and replaces an earlier row of the same name.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

SKIP_STATUS = 77
"""Exit status of a check that cannot run here; its last line has the reason."""
ROWS = "FIRST_HOUR_ROWS"
"""Environment variable with the file's path."""


def settings() -> dict[str, Any]:
    """The check's settings, from its command line."""
    given: dict[str, Any] = json.loads(sys.argv[1])
    return given


def report(row: str, **figures: Any) -> None:
    """Adds a row; names of figures become columns of the page."""
    with Path(os.environ[ROWS]).open("a", encoding="utf-8") as file:
        file.write(json.dumps({"row": row, **figures}) + "\n")
    print(row, *(f"{name}: {value}" for name, value in figures.items()), sep="; ", flush=True)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows that a check has reported: the last one of each name, in order of first report.

    A line that was cut off by a kill is ignored.
    """
    rows: dict[str, dict[str, Any]] = {}
    if path.exists():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                row = json.loads(line)
                rows[row["row"]] = row
            except (KeyError, TypeError, ValueError):
                continue
    return list(rows.values())


def skip(reason: str) -> NoReturn:
    print(reason, flush=True)
    sys.exit(SKIP_STATUS)
