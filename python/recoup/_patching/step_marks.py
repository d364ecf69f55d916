"""Steps of optimizers, told to runs that want to know."""

from collections.abc import Callable

from torch.optim import optimizer
from torch.utils.hooks import RemovableHandle

_handles: dict[object, RemovableHandle] = {}


def add(user: object, hook: Callable[..., None]) -> None:
    """Calls `hook` behind each step of an optimizer, until `remove(user)`."""
    # As torch.optim's own function does, but the handle is known before the hook is in force: an
    # interrupt in between leaves no hook that nobody can remove.
    hooks = optimizer._global_optimizer_post_hooks
    handle = RemovableHandle(hooks)
    _handles[user] = handle
    hooks[handle.id] = hook


def remove(user: object) -> None:
    """Ends it; does nothing when there is none."""
    if user in _handles:
        _handles[user].remove()
        _handles.pop(user, None)
