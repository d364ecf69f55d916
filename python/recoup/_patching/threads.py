"""Threads of the program that join a scope."""

import contextlib
from collections.abc import Iterator

from recoup import _C


@contextlib.contextmanager
def carry() -> Iterator[None]:
    """A `with` block, or a decorator, that makes the thread it runs on one of the scope's.

    Other threads than the one that entered `recoup.budget` run unseen: what they make is not in the
    budget, and a tensor that is evicted raises when they touch it. In here they are seen: their ops
    take from the budget, and bring back what they read. Threads of one scope take turns at ops.
    Does nothing where no scope is open; ends with the scope where that is left earlier.

        with recoup.budget("4GiB"), ThreadPoolExecutor() as pool:
            pool.map(recoup.carry()(augment), batches)
    """
    before = _C.carry(True)
    try:
        yield
    finally:
        _C.carry(before)
