"""What `Run.paged_results()` says of results that do not fit in the budget."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recoup import _C


@dataclasses.dataclass(frozen=True, kw_only=True)
class PagedResults:
    """Results in paged memory since the first one of the run: `Run.paged_results()`.

    Tensors of earlier scopes that are in paged memory are included.
    """

    now_bytes: int
    """Paged memory that is allocated now, in bytes."""
    most_bytes: int
    """The most that was allocated at any time, in bytes."""
    read_bytes: int
    """Bytes that were read from the disk while ops ran."""
    written_bytes: int
    """Bytes that were written to the disk while ops ran."""
    disk_ns: int
    """Time of these copies, in nanoseconds; it is a part of the time of the ops."""


def paged_results(engine: _C.Engine) -> PagedResults | None:
    """The use of paged memory; None if no result was paged."""
    use = engine.paged_use()
    return PagedResults(**use) if use["most_bytes"] else None
