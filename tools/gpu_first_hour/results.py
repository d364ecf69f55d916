"""What is known so far: a file that is written again at each change, whole or not at all."""

import json
import os
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

OK, FAILED, TIMEOUT = "ok", "failed", "time limit"
SKIPPED, NO_TIME, RUNNING = "skipped", "no time left", "running"
FINAL = (OK, FAILED, TIMEOUT)
"""A check with one of these does not run again by itself. One that was running when the script was
killed does."""
BENCHMARK = "gpu_first_hour"


@dataclass
class Outcome:
    """How a check ended, and what it found."""

    status: str
    seconds: float = 0.0
    reason: str = ""
    """Why it was skipped or failed, in a line."""
    rows: list[dict[str, Any]] = field(default_factory=list)
    """What it measured; those of a check that was killed are as far as it got."""
    output: str = ""
    """The end of what it printed."""


@dataclass
class Results:
    """Of all checks, by name."""

    settings: dict[str, Any]
    """With what was measured: another GPU, PyTorch or recoup is another file."""
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    def is_done(self, name: str) -> bool:
        return name in self.outcomes and self.outcomes[name].status in FINAL

    def write(self, path: Path) -> None:
        text = json.dumps({"benchmark": BENCHMARK, **asdict(self)}, indent=1) + "\n"
        write_whole(path, text)


def read(path: Path, settings: dict[str, Any]) -> Results:
    """Those of the file, or new ones where there is none.

    Raises ValueError when the file is something else, or was measured with other settings.
    """
    if not path.exists():
        return Results(settings)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["benchmark"] != BENCHMARK:
            raise ValueError
        outcomes = {name: Outcome(**row) for name, row in found["outcomes"].items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ValueError(f"{path} is not a result of {BENCHMARK}") from None
    for name, value in settings.items():
        if found["settings"].get(name) != value:
            raise ValueError(
                f"{path} was measured with {name} = {found['settings'].get(name)!r}, and here it "
                f"is {value!r}: give another --out, or --again"
            )
    return Results(found["settings"], outcomes)


def write_whole(path: Path, text: str) -> None:
    """Readers see the old file or the new one, never a part."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(name, 0o644)
    os.replace(name, path)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows that a check has reported: the last one of each name, in the order of the first.

    A line that was cut off by a kill is left out.
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
