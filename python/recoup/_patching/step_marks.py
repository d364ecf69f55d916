"""Reports the end of optimizer steps to runs."""

from collections.abc import Callable

from torch.optim import optimizer
from torch.utils.hooks import RemovableHandle

_handles: dict[object, RemovableHandle] = {}


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
