"""Reports the end of optimizer steps to runs, and ends a program there."""

import functools
import threading
from collections.abc import Callable
from typing import Any

from torch.optim import optimizer
from torch.utils.hooks import RemovableHandle

_handles: dict[object, RemovableHandle] = {}


class StepsHaveEnded(BaseException):
    """Ends a program after a step. Not an Exception, because programs catch those and go on."""


def is_due_to_the_end(error: BaseException) -> bool:
    """Whether `error` is StepsHaveEnded, or was raised while handling it."""
    seen: set[int] = set()
    left = [error]
    while left:
        one = left.pop()
        if isinstance(one, StepsHaveEnded):
            return True
        if id(one) not in seen:
            seen.add(id(one))
            left += [each for each in (one.__cause__, one.__context__) if each is not None]
            left += getattr(one, "exceptions", ())  # of an exception group
    return False


def silence_threads() -> Any:
    """Prints no traceback of threads that StepsHaveEnded ends. Returns the hook from before."""
    before = threading.excepthook
    threading.excepthook = functools.partial(_call_thread_hook, before)
    return before


def _call_thread_hook(hook: Any, arguments: Any) -> None:
    if arguments.exc_value is None or not is_due_to_the_end(arguments.exc_value):
        hook(arguments)


def add(user: object, hook: Callable[..., None]) -> None:
    """Calls `hook` after each step of any optimizer, until `remove(user)`."""
    # torch.optim's own function stores the handle after the hook is active; an interrupt in between
    # would leave a hook that cannot be removed.
    hooks = optimizer._global_optimizer_post_hooks
    handle = RemovableHandle(hooks)
    _handles[user] = handle
    hooks[handle.id] = hook


def remove(user: object) -> None:
    """Removes the user's hook, if there is one."""
    if user in _handles:
        _handles[user].remove()
        _handles.pop(user, None)
