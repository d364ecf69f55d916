"""Errors, and notes on errors."""

import sys
import warnings
from typing import TYPE_CHECKING

import torch

from recoup.warning import RecoupWarning

if TYPE_CHECKING:
    from recoup.run import Run


_LAST_WORDS = " This counts as out of memory."


class OutOfBudgetError(torch.OutOfMemoryError):
    """The program needs more memory than its budget. A larger budget can go on.

    Its text is a report of the fields below. Sizes are bytes of the pool, alignment included.
    """

    def __init__(self, text: str = "") -> None:
        # By its last words frameworks know it that try again with a smaller batch. An error that
        # is unpickled, or raised again with another text around it, has them.
        super().__init__(text if _LAST_WORDS in text else text + _rank() + _LAST_WORDS)

    op: str = ""
    """The op that asked for memory, or what else did ("scope exit")."""
    asked_bytes: int = 0
    """Size of the allocation that did not fit."""
    budget_bytes: int = 0
    """The budget."""
    external_bytes: int = 0
    """Charged for memory outside of the pool: tensors that were made before the scope or by other
    libraries, and tensors whose address NumPy or other code was given."""
    non_recomputable_bytes: int = 0
    """Values in the pool that cannot be recomputed."""
    pinned_bytes: int = 0
    """Held by the running op, by pins or by escapes."""
    workspace_bytes: int = 0
    """Blocks that kernels hold and that are no tensor yet."""
    evictable_bytes: int = 0
    """What eviction could still have freed."""
    largest_window_bytes: int = 0
    """Largest contiguous range that evicting and moving could have emptied."""
    least_bytes: int = 0
    """Live tensors that cannot be evicted, and what was asked for, where that is more than the
    budget: no smaller budget is enough. 0: no least budget is known."""
    likely_bytes: int = 0
    """`enough_bytes` without its reserve for fragmentation: most likely enough."""
    enough_bytes: int = 0
    """A budget in which all that ran so far, and this allocation, fit without evicting anything.

    At the end of a scope: one with which `run.resume` brings everything back. What the rest of the
    program needs is not known; 0: no budget would do."""
    run: "Run | None" = None
    """At the end of a scope: its run, for `run.resume`. While it is kept nothing is lost."""


def _rank() -> str:
    """Which process of a distributed program this is; empty in any other program."""
    distributed = sys.modules.get("torch.distributed")
    is_initialized = getattr(distributed, "is_initialized", None)  # not before it is imported
    if distributed is None or is_initialized is None or not is_initialized():
        return ""
    return f" This is rank {distributed.get_rank()} of {distributed.get_world_size()}."


def add_note(error: BaseException, note: str) -> None:
    """Adds `note` to what Python prints for `error`; before Python 3.11 it becomes a warning."""
    if hasattr(error, "add_note"):
        error.add_note(note)
    else:
        warnings.warn(note, RecoupWarning, stacklevel=3)
