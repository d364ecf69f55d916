"""What `Run.shared_budget()` says of a budget that several processes share."""

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True, kw_only=True)
class SharedPart:
    """The part of one process in a shared budget, in `SharedBudget.parts`."""

    process: int
    """The process id."""
    is_own: bool
    """Whether it is this process."""
    part_bytes: int
    """The budget of its scope now, in bytes."""
    worker_bytes: int
    """Memory of its worker processes, which the shared budget is charged for, in bytes."""
    wait_ns: int
    """Time for which its op has waited for memory, in nanoseconds; 0 if none waits."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SharedBudget:
    """A budget that several processes share: `Run.shared_budget()`."""

    total_bytes: int
    """The budget of all processes, in bytes."""
    most_bytes: int
    """The largest part of this process so far, in bytes."""
    waits: int
    """Number of ops of this process that waited for memory of others."""
    wait_ns: int
    """Time of these waits, in nanoseconds."""
    parts: Sequence[SharedPart]
    """All processes now, this one included; empty when the scope has ended."""
