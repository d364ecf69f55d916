"""Threads of the program that join a scope."""

import contextlib
from collections.abc import Iterator

from recoup import _C


@contextlib.contextmanager
def carry() -> Iterator[None]:
    """A `with` block, or a decorator, in which the current thread belongs to the scope.

    Threads other than the one that entered `recoup.budget` normally bypass the scope: their tensors
    are not in the budget, and they raise an error when they touch an evicted tensor. Inside this
    block their ops take memory from the budget and restore their arguments. Threads of one scope
    run ops one at a time. No effect if no scope is open; ends with the scope if that ends first.

        with recoup.budget("4GiB"), ThreadPoolExecutor() as pool:
            pool.map(recoup.carry()(augment), batches)
    """
    before = _C.carry(True)
    try:
        yield
    finally:
        _C.carry(before)
