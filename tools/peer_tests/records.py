"""Records of a run of a suite: one line of JSON for each test."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

# Outcomes of a test during which its process ended, at the time limit or otherwise.
HANG, CRASH = "hang", "crash"


@dataclass
class Record:
    id: str
    outcome: str
    """'passed', 'failed', 'skipped', 'hang' or 'crash'."""
    seconds: float = 0.0
    error: str = ""
    """Why it failed or was skipped, with the end of the traceback."""
    exit_error: str = ""
    """The error that the end of the scope raised."""
    values: int = 0
    """Number of values that the test compared."""
    digest: str = ""
    """Digest of these values, in order."""
    evictions: int = 0
    replays: int = 0
    peak_bytes: int = 0
    """Peak bytes of tensors in the scope."""


def append(path: Path, record: Record) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(record)) + "\n")


def read(path: Path) -> dict[str, Record]:
    """Records by id. A test that failed in its call and its teardown has two; the first counts."""
    found: dict[str, Record] = {}
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            record = Record(**json.loads(line))
            if record.id not in found or found[record.id].outcome == "passed":
                found[record.id] = record
    return found
