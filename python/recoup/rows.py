"""The rows of the tables that the methods of `Run` return.

`dataclasses.asdict` makes a row a dictionary of JSON values. A field is None if the run did not
record it.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

MemoryKind = Literal[
    "parameters",
    "buffers",
    "gradients",
    "optimizer",
    "activations",
    "inputs",
    "workspace",
    "other",
]


TAKEN_AT = "its address was taken at"
"""Beginning of `PinnedValue.why` if a line is known."""


def why_pinned(row: Mapping[str, Any]) -> str:
    """`PinnedValue.why` of a row of `_C.Engine.pinned()`."""
    return f"{TAKEN_AT} {row['line']}" if row["line"] else row["why"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PinnedValue:
    """A value that cannot be evicted: a row of `Run.pinned`."""

    bytes: int
    """Size of the value, in bytes."""
    by: str
    """The reason: "pin", "escape", "non-recomputable" or another text."""
    op: str
    """The op that made the value; empty: no op made it, or the op is not known."""
    why: str = ""
    """Why the value is non-recomputable, or the program's line that took its address; empty: there
    is no reason to state, as for a tensor that was made outside."""
    module: str | None = None
    """Qualified name of the module that the value belongs to; empty: no module. None without
    `recoup.budget(profile="modules")`."""
    kind: MemoryKind | None = None
    """Use of the memory. None without `recoup.budget(profile="modules")`."""
    name: str | None = None
    """Name of the tensor, as in `named_parameters`; empty: the tensor has no name. None without
    `recoup.budget(profile="modules")`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Holder:
    """Memory that one module holds for one use: a row of `Run.holders`."""

    module: str
    """Qualified name of the module; empty: outside of all modules."""
    kind: MemoryKind
    """Use of the memory."""
    op: str | None = None
    """The op that made the values; empty: no op made them. None without `each=True`."""
    name: str | None = None
    """Name of the tensor, as in `named_parameters`; empty: the tensors have no name. None without
    `each=True`."""
    line: str | None = None
    """The program line that ran the op, as 'file:line (function)'; empty without
    `recoup.budget(profile="lines")`. None without `each=True`."""
    bytes: int
    """Size of all values of the row, in bytes."""
    values: int
    """Number of values."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModuleWork:
    """Work that was done for one module: a row of `Run.work`.

    An op of backward counts for the module of its forward op.
    """

    module: str
    """Qualified name of the module; empty: outside of all modules."""
    ops: int
    """Number of ops that the program ran."""
    op_ns: int
    """Cost of these ops, in nanoseconds, as in `Stats.op_ns`."""
    replays: int
    """Number of ops that ran again to restore evicted values."""
    replay_ns: int
    """Cost of these ops, in nanoseconds, as in `Stats.replay_cost_ns`."""
    evictions: int
    """Number of evictions of values of the module."""
    evicted_bytes: int
    """Size of all values that were evicted, in bytes. A value counts at each eviction."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CopyWait:
    """Waits of one op for copies to and from the spill tier: a row of `Run.copy_waits`."""

    op: str
    """Name of the op; empty: between ops, as at the end of the scope."""
    spill_ns: int
    """Time that the program waited for copies to the tier, in nanoseconds."""
    fetch_ns: int
    """Time that the program waited for copies from the tier, in nanoseconds."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class KeptGraphs:
    """Calls of compiled graphs that could not be replayed: a row of `Run.kept_graphs`.

    The results of such a call are never evicted.
    """

    reason: str
    """Why the calls could not be replayed."""
    calls: int
    """Number of calls."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BudgetChange:
    """A change of a budget that fits the memory of the machine: a row of `Run.budget_changes`."""

    start_ns: int
    """Time since the scope began, in nanoseconds."""
    before_bytes: int
    """The budget before, in bytes."""
    after_bytes: int
    """The budget after, in bytes."""
    free_bytes: int
    """Memory that this process could still take, in bytes."""
    source: str
    """The file that says so, and its line if it has several."""


def recorded(row: PinnedValue | Holder | ModuleWork) -> dict[str, Any]:
    """The row as a dictionary of the fields that the run recorded."""
    return {name: value for name, value in dataclasses.asdict(row).items() if value is not None}
