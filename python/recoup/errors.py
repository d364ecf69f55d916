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
    """The program needs more memory than its budget. It can continue in a larger budget.

    The message is a report of the fields below. Sizes are bytes of the pool, alignment included.
    """

    def __init__(self, text: str = "") -> None:
        # Frameworks recognize out-of-memory errors by these last words and retry with a smaller
        # batch. An unpickled or re-raised error with other text around it already has them.
        super().__init__(text if _LAST_WORDS in text else text + _rank() + _LAST_WORDS)

    op: str = ""
    """The op that asked for memory, or another activity ("the change to a smaller budget")."""
    asked_bytes: int = 0
    """Size of the allocation that did not fit."""
    budget_bytes: int = 0
    """The budget."""
    external_bytes: int = 0
    """Bytes charged for memory outside of the pool: tensors that were made before the scope or by
    other libraries, and tensors whose address was given to NumPy or other code."""
    non_recomputable_bytes: int = 0
    """Bytes of values in the pool that cannot be recomputed."""
    pinned_bytes: int = 0
    """Bytes held by the running op, by pins or by escapes."""
    workspace_bytes: int = 0
    """Bytes of blocks that kernels hold and that belong to no tensor yet."""
    evictable_bytes: int = 0
    """Bytes that eviction could still have freed."""
    largest_window_bytes: int = 0
    """Largest contiguous range that evicting and moving could have emptied, in bytes."""
    least_bytes: int = 0
    """Bytes of live tensors that cannot be evicted plus `asked_bytes`, if that exceeds the budget:
    no smaller budget is enough. 0: no lower bound is known."""
    next_bytes: int = 0
    """The budget to try next: a quarter more than `budget_bytes` and `least_bytes`, at most
    `enough_bytes`. If no smaller budget works than one that failed, it is at most 1.25 times the
    least budget that works. 0: no budget is enough."""
    next_spill_bytes: int = 0
    """The capacity of a spill tier to try next, with room for what cannot be recomputed now. 0: a
    tier, or a larger one, would not help."""
    enough_bytes: int = 0
    """A budget in which all ops so far, and this allocation, fit without evictions: an upper bound.

    The needs of the rest of the program are not known. At the end of a scope: a budget with which
    `run.resume` restores all live tensors. Of `run.set_budget`: a budget to which it can change the
    budget now. 0: no budget is enough."""
    run: "Run | None" = None
    """At the end of a scope: its run, for `run.resume`. While it is kept alive nothing is lost."""


def _rank() -> str:
    """The process's rank as a sentence; empty if the program is not distributed."""
    distributed = sys.modules.get("torch.distributed")
    is_initialized = getattr(distributed, "is_initialized", None)  # missing until it is imported
    if distributed is None or is_initialized is None or not is_initialized():
        return ""
    return f" This is rank {distributed.get_rank()} of {distributed.get_world_size()}."


def add_note(error: BaseException, note: str) -> None:
    """Adds `note` to the printed text of `error`; before Python 3.11 it becomes a warning."""
    if hasattr(error, "add_note"):
        error.add_note(note)
    else:
        warnings.warn(note, RecoupWarning, stacklevel=3)
