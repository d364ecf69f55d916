"""The results so far: a file that is replaced atomically after each change."""

import json
import os
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

OK, FAILED, TIMEOUT = "ok", "failed", "time limit"
SKIPPED, NO_TIME, RUNNING = "skipped", "no time left", "running"
FINAL = (OK, FAILED, TIMEOUT)
"""A check with one of these is not repeated automatically; one that was running when the script was
killed is."""
BENCHMARK = "gpu_first_hour"


@dataclass
class Outcome:
    """How a check ended, and its measurements."""

    status: str
    seconds: float = 0.0
    reason: str = ""
    """Why it was skipped or failed, in one line."""
    rows: list[dict[str, Any]] = field(default_factory=list)
    """Its measurements; of a killed check, those until then."""
    output: str = ""
    """The end of its output."""


@dataclass
class Results:
    """The results of all checks, by name."""

    settings: dict[str, Any]
    """Machine and versions of the measurements; other settings need another file."""
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    def is_done(self, name: str) -> bool:
        return name in self.outcomes and self.outcomes[name].status in FINAL

    def write(self, path: Path) -> None:
        text = json.dumps({"benchmark": BENCHMARK, **asdict(self)}, indent=1) + "\n"
        write_whole(path, text)


def read(path: Path, settings: dict[str, Any]) -> Results:
    """The results in the file, or new ones if there is none.

    Raises ValueError if the file is no result file or was measured with other settings.
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
    """Writes a file so that readers see either the old content or the new one."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(name, 0o644)
    os.replace(name, path)


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
