"""Wrappers that tell when a collective has finished, and that carry scopes into its callbacks.

See Note [In collective] in in_flight.h.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch

from recoup import _C
from recoup._patching.late_patches import LatePatches, LateReplacement
from recoup._patching.patches import Patches, Replacement
from recoup._patching.threads import carried


def _waiting(original: Callable[..., bool]) -> Callable[..., bool]:
    """Reports the end of a wait, because some works never report that they are complete."""

    @functools.wraps(original)
    def wrapper(work: Any, *args: Any, **kwargs: Any) -> bool:
        done = original(work, *args, **kwargs)
        if done:
            _C.waited(work)
        return done

    return wrapper


def _calling_back(original: Callable[..., Any]) -> Callable[..., Any]:
    """Runs the callbacks of a scope's thread inside the scope.

    A callback may run on a thread of the process group: communication hooks of DDP write buckets
    there.
    """

    @functools.wraps(original)
    def wrapper(future: Any, callback: Callable[..., Any]) -> Any:
        return original(future, carried(callback))

    return wrapper


LATE_PATCHES = LatePatches(
    [LateReplacement("torch.distributed.distributed_c10d", "Work", "wait", _waiting)]
)
"""Installed while a scope is active and torch.distributed is loaded."""

PATCHES = Patches(
    [Replacement(torch._C.Future, name, _calling_back) for name in ("then", "add_done_callback")]
)
"""Installed while a scope is active."""
