"""What a run of a suite leaves: one line of JSON for each test."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

# Outcomes of a test whose process ended in it: by its time limit, or in another way.
HANG, CRASH = "hang", "crash"


@dataclass
class Record:
    id: str
    outcome: str
    """'passed', 'failed', 'skipped', 'hang' or 'crash'."""
    seconds: float = 0.0
    error: str = ""
    """Why it failed or was skipped, with the last lines of the traceback."""
    exit_error: str = ""
    """What the end of the scope raised."""
    values: int = 0
    """How many values the test compared."""
    digest: str = ""
    """Of these values, in order."""
    evictions: int = 0
    replays: int = 0
    peak_bytes: int = 0
    """The most bytes that tensors took in the scope."""


def append(path: Path, record: Record) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(record)) + "\n")


def read(path: Path) -> dict[str, Record]:
    """By id. A test that failed in its call and in its teardown has two; the first counts."""
    found: dict[str, Record] = {}
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            record = Record(**json.loads(line))
            if record.id not in found or found[record.id].outcome == "passed":
                found[record.id] = record
    return found
