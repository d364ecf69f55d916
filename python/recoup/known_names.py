"""Names of policies, planners and networks, for those who need them before PyTorch is loaded.

They are defined in the C++ core and in the bench, which take seconds to load. tools/known_names.py
writes the file that is read here, and a test compares it with the definitions.
"""

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Policy:
    """A row of `policies()`."""

    name: str
    """What `budget(policy=...)` takes."""
    summary: str
    """One line."""
    small_filter: bool
    """Whether its paper leaves out values below 1 % of the mean size."""
    sampling: bool
    """Whether its paper scores only about 2 sqrt(N) candidates."""
    schedule: bool
    """Whether it makes a schedule of one training step, which drives the next ones."""
    kinetic: bool
    """Whether `budget(kinetic=True)` takes it: its score falls with staleness or its root."""
    foresees: bool
    """Whether it plans the evictions of steps that repeat."""


def policies(*, simulated: bool = False) -> list[Policy]:
    """The policies that a run may have, in the order of all tables.

    simulated: those too that know the future and can only be simulated.
    """
    return [Policy(*row[:5], *row[6:]) for row in _tables()["policies"] if simulated or not row[5]]


def policy_names(*, simulated: bool = False) -> list[str]:
    """Their names."""
    return [policy.name for policy in policies(simulated=simulated)]


def layout_planners() -> dict[str, bool]:
    """The planners of layouts, and whether each gives addresses and not only a size."""
    return {name: places for name, _, places in _tables()["layout_planners"]}


def names(table: str) -> list[str]:
    """The names in a table of the file, in its order."""
    return [row if isinstance(row, str) else row[0] for row in _tables()[table]]


@functools.cache
def _tables() -> dict[str, list[Any]]:
    text = Path(__file__).with_name("known_names.json").read_text(encoding="utf-8")
    tables: dict[str, list[Any]] = json.loads(text)
    return tables
