"""Names of policies, planners and networks for code that must not load PyTorch.

They are defined in the C++ core and in the bench, which take seconds to load. tools/known_names.py
writes the file that this module reads, and a test compares it with the definitions.
"""

import functools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ONLY_SIMULATED = "needs knowledge of the future, which only simulations have"
"""Why a policy is not available in a live run."""


@dataclass(frozen=True)
class Policy:
    """A policy as `policies()` lists it."""

    name: str
    """Value of `budget(policy=...)`."""
    summary: str
    """One line of text."""
    small_filter: bool
    """Whether its paper ignores values below 1 % of the mean size."""
    sampling: bool
    """Whether its paper scores only about 2 sqrt(N) of N candidates."""
    schedule: bool
    """Whether it makes a schedule from one training step and applies it to the next ones."""
    simulated: bool
    """Whether it knows the future, so that only simulations can use it."""
    kinetic: bool
    """Whether `Options(kinetic=True)` supports it: its score falls with staleness or its root."""
    foresees: bool
    """Whether it plans the evictions of repeating steps."""


@dataclass(frozen=True)
class EngineOption:
    """An option of the engine, as the option table of the core defines it."""

    name: str
    allowed: str
    """The allowed values: what follows "must be" in messages."""
    default: Any


def option_table() -> dict[str, EngineOption]:
    """The options of the engine by name."""
    return {row[0]: EngineOption(*row) for row in _tables()["options"]}


def policies(*, simulated: bool = False) -> list[Policy]:
    """The available policies, in the order of all tables.

    simulated: include the policies that know the future, which only simulations can use.
    """
    rows = _policies(_tables()["policies"])
    return [policy for policy in rows if simulated or not policy.simulated]


def policy_names(*, simulated: bool = False) -> list[str]:
    """The names of `policies()`."""
    return [policy.name for policy in policies(simulated=simulated)]


def core_policies() -> dict[str, Policy]:
    """All policies of the core by name, the simulated ones included. This loads PyTorch.

    A run uses these: the file lacks a new policy until tools/known_names.py has run.
    """
    from recoup import _C

    return {policy.name: policy for policy in _policies(_C.policies())}


def layout_planners() -> dict[str, bool]:
    """Layout planners; the value says whether a planner gives addresses in addition to a size."""
    return {name: places for name, _, places in _tables()["layout_planners"]}


def names(table: str) -> list[str]:
    """The names in a table of the file, in file order."""
    return [row if isinstance(row, str) else row[0] for row in _tables()[table]]


def _policies(rows: Iterable[Sequence[Any]]) -> list[Policy]:
    """The rows of `_C.policies()` and of the file, whose order is that of the fields."""
    return [Policy(*row) for row in rows]


@functools.cache
def _tables() -> dict[str, list[Any]]:
    text = Path(__file__).with_name("known_names.json").read_text(encoding="utf-8")
    tables: dict[str, list[Any]] = json.loads(text)
    return tables
