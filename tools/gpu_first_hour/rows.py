"""How a check reports: rows in a file, which survive whatever ends the process.

A row has a name. One that is reported again under the same name replaces it.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

SKIP_STATUS = 77
"""The exit status of a check that says in its last line why it cannot run here."""
ROWS = "FIRST_HOUR_ROWS"
"""The environment variable that names the file."""


def settings() -> dict[str, Any]:
    """What the check was told on its command line."""
    told: dict[str, Any] = json.loads(sys.argv[1])
    return told


def report(row: str, **figures: Any) -> None:
    """Names of figures are what the page shows as columns."""
    with Path(os.environ[ROWS]).open("a", encoding="utf-8") as file:
        file.write(json.dumps({"row": row, **figures}) + "\n")
    print(row, *(f"{name}: {value}" for name, value in figures.items()), sep="; ", flush=True)


def skip(reason: str) -> NoReturn:
    print(reason, flush=True)
    sys.exit(SKIP_STATUS)
