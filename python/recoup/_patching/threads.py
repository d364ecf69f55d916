"""Threads of the program that belong to a scope."""

import _thread
import contextlib
import functools
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from recoup import _C
from recoup._patching.patches import Patches, Replacement
from recoup.warning import RecoupWarning


@contextlib.contextmanager
def carry() -> Iterator[None]:
    """A `with` block, or a decorator, in which the current thread belongs to the scope.

    Needed only for a thread that was started before the scope, or by a thread outside of it: such
    a thread bypasses the scope. Its tensors are not in the budget, and it raises an error when it
    touches an evicted tensor. Inside this block its ops take memory from the budget and restore
    their arguments. Threads of one scope run ops one at a time. No effect while no scope is open.
    Example::

        with ThreadPoolExecutor() as pool:
            pool.map(print, range(8))  # starts the threads
            with recoup.budget("4GiB"):
                pool.map(recoup.carry()(augment), batches)
    """
    before = _C.carry(True)
    try:
        yield
    finally:
        _C.carry(before)


def carried(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` for another thread, which belongs to the scope if the current thread does."""
    return carry()(function) if _C.carries() else function


def _starting(start: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a thread belong to the scope if the thread that starts it does, until it ends.

    Such a thread also belongs to later scopes: a pool of threads may outlive the scope in which it
    was made, and the program expects that it works in the next one.
    """

    @functools.wraps(start)
    def wrapper(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if sys.version_info < (3, 12):  # later versions report the start, see scope_module.cpp
            _C.withdraw_offers()
        return start(carried(function), *args, **kwargs)

    return wrapper


PATCHES = Patches(
    [
        Replacement(module, name, _starting)
        for module in (_thread, threading)
        for name in (
            "start_new_thread",
            "start_new",
            "start_joinable_thread",
            "_start_new_thread",
            "_start_joinable_thread",
        )
        if hasattr(module, name)  # depends on Python's version
    ]
)
"""Installed while a scope is active."""


def _warn(message: str) -> None:
    warnings.warn(f"recoup: {message}", RecoupWarning, stacklevel=2)


say: Callable[[str], None] = _warn
"""Tells the user of an error that the program may hide; `recoup run` writes to stderr instead."""


def tell_of_outside_access(native_id: int) -> None:
    """Tells the user that this thread accesses an evicted tensor; called once in each scope."""
    names = [each.name for each in threading.enumerate() if each.native_id == native_id]
    say(
        f"thread {names[0] if names else native_id!r} is outside the budget scope and accessed an "
        "evicted tensor, which is an error there. Another thread that waits for its results may "
        "wait forever. Start the thread inside the scope, or run its work in `with "
        "recoup.carry():`"
    )
