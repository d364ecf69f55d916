"""Files of results with the settings of their measurement; other files are refused."""

import json
import os
import platform
from pathlib import Path
from typing import Any, TypeVar

import torch

import recoup
from recoup._reporting.files import write_atomically

_T = TypeVar("_T")


def versions() -> dict[str, Any]:
    """Versions and hardware that every measurement depends on."""
    return {
        "recoup": recoup.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }


def write(path: Path, benchmark: str, parts: dict[str, Any]) -> None:
    """Writes the parts as JSON; lists have one row per line."""
    lines = (
        f"{json.dumps(name)}: {_in_lines(part)}"
        for name, part in {"benchmark": benchmark, **parts}.items()
    )
    write_atomically(path, "{\n" + ",\n".join(lines) + "\n}\n")


def _in_lines(part: Any) -> str:
    if not isinstance(part, list):
        return json.dumps(part)
    return "[\n" + ",\n".join(json.dumps(row) for row in part) + "\n]"


def read(path: Path, benchmark: str, kind: type[_T], settings: dict[str, Any]) -> _T:
    """The results in the file, if it was measured with these settings.

    Raises ValueError if the file is no result file or was measured with other settings.
    """
    try:
        parts = json.loads(path.read_text())
        if parts.pop("benchmark") != benchmark:
            raise KeyError
        found = dict(parts["settings"])
        results = kind(**parts)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ValueError(f"{path} was not written by `recoup {benchmark}`") from None
    for name, value in settings.items():
        if found.get(name) != value:
            raise ValueError(
                f"{path} was measured with {name} = {found.get(name)}, not {value}; choose "
                "another file with --out"
            )
    return results
