"""Settings of a budget from the environment and from pyproject.toml.

A setting that is not given is taken from its environment variable; if there is none, from the table
`[tool.recoup]` of the nearest pyproject.toml that has one, in the working directory or above it.
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

VARIABLES = {"budget": "RECOUP_BUDGET", "spill": "RECOUP_SPILL"}
"""Environment variables of the settings."""


@dataclass(frozen=True)
class Default:
    """A setting that the program did not give."""

    value: int | str
    source: str
    """The variable, or the file and its key: the subject of an error message."""


def default_of(setting: str) -> Default | None:
    """The default of a setting of VARIABLES; None if there is none.

    Raises ValueError, which names the file, if pyproject.toml cannot be read or has another content
    than these settings.
    """
    variable = VARIABLES[setting]
    if text := os.environ.get(variable):
        return Default(text, variable)
    found = _table()
    if found is None or setting not in found[1]:
        return None
    path, table = found
    return Default(table[setting], f"{path}: [tool.recoup] {setting}")


def _table() -> tuple[Path, dict[str, Any]] | None:
    """The nearest pyproject.toml with a table of recoup, and the table."""
    try:
        here = Path.cwd()
    except FileNotFoundError:  # it was removed
        return None
    for folder in (here, *here.parents):
        path = Path(os.path.relpath(folder / "pyproject.toml"))
        try:
            content = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            continue
        except OSError as error:
            raise ValueError(f"{path} cannot be read: {error}") from None
        if b"recoup" not in content:
            continue
        try:
            table = tomllib.loads(content.decode()).get("tool", {}).get("recoup")
        except (ValueError, AttributeError) as error:
            raise ValueError(f"{path} cannot be read: {error}") from None
        if table is not None:
            _check(path, table)
            return path, table
    return None


def _check(path: Path, table: object) -> None:
    allowed = ", ".join(VARIABLES)
    if not isinstance(table, dict):
        raise ValueError(f"{path}: [tool.recoup] must be a table with {allowed}")
    for name, value in table.items():
        if name not in VARIABLES:
            raise ValueError(f"{path}: [tool.recoup] may have {allowed}; got {name!r}")
        if isinstance(value, bool) or not isinstance(value, int | str):
            kind = type(value).__name__
            raise ValueError(f"{path}: [tool.recoup] {name} must be a size; got {kind}")
