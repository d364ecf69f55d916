"""Files of results with the settings of their measurement; other settings are refused."""

import json
import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from recoup._reporting.files import write_atomically

_Kind = TypeVar("_Kind", bound="Results")


@dataclass
class Results:
    """All results so far. A subclass adds fields whose values JSON can have."""

    command: ClassVar[str]
    """The command that measures."""
    settings: dict[str, Any]
    """What all results in one file must share: machine, versions, parameters."""

    @classmethod
    def open(cls: type[_Kind], path: Path | None, settings: dict[str, Any]) -> _Kind:
        """The results in the file, to be continued, or new ones if there is no file.

        Raises ValueError if the file is no result file or was measured with other settings.
        """
        if path is None or not path.exists():
            return cls(settings)
        try:
            parts = json.loads(path.read_text(encoding="utf-8"))
            if parts.pop("benchmark") != cls._benchmark():
                raise KeyError
            found = dict(parts["settings"])
            results = cls(**parts)
        except (AttributeError, KeyError, TypeError, ValueError):
            raise ValueError(f"{path} was not written by `{cls.command}`") from None
        for name, value in settings.items():
            if found.get(name) != value:
                raise ValueError(
                    f"{path} was measured with {name} = {found.get(name)}, not {value}; choose "
                    "another file with --out"
                )
        return results

    def write(self, path: Path | None) -> None:
        """Writes the results as JSON, if a file is given. Raises OSError."""
        if path is not None:
            write(path, self._benchmark(), asdict(self))

    @classmethod
    def _benchmark(cls) -> str:
        return cls.command.removeprefix("recoup ")


def write(path: Path, benchmark: str, parts: dict[str, Any]) -> None:
    """Writes the parts as JSON, so that readers see either the old content or the new one.

    Lists have one row per line. Raises OSError.
    """
    named = {"benchmark": benchmark, **parts}
    lines = (f"{json.dumps(name)}: {_in_lines(part)}" for name, part in named.items())
    write_atomically(path, "{\n" + ",\n".join(lines) + "\n}\n")


def _in_lines(part: Any) -> str:
    if not isinstance(part, list):
        return json.dumps(part)
    return "[\n" + ",\n".join(json.dumps(row) for row in part) + "\n]"


def versions() -> dict[str, Any]:
    """Versions and hardware that every measurement depends on."""
    import torch

    import recoup

    return {
        "recoup": recoup.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }
