"""When collectives have finished, and on which threads their callbacks run.

See Note [In flight] in in_flight.h.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch

from recoup import _C
from recoup._patching.late_patches import LatePatches, LateReplacement
from recoup._patching.patches import Patches, Replacement
from recoup._patching.threads import carry


def _waiting(original: Callable[..., bool]) -> Callable[..., bool]:
    """Some works never say that they are complete, so the end of a wait is told."""

    @functools.wraps(original)
    def wrapper(work: Any, *args: Any, **kwargs: Any) -> bool:
        done = original(work, *args, **kwargs)
        if done:
            _C.waited(work)
        return done

    return wrapper


def _calling_back(original: Callable[..., Any]) -> Callable[..., Any]:
    """What a thread of a scope has called back carries the scope.

    It may run on a thread of the process group: communication hooks of DDP write buckets there.
    """

    @functools.wraps(original)
    def wrapper(future: Any, callback: Callable[..., Any]) -> Any:
        on_scope_thread = _C.carry(True)
        _C.carry(on_scope_thread)
        return original(future, carry()(callback) if on_scope_thread else callback)

    return wrapper


LATE_PATCHES = LatePatches(
    [LateReplacement("torch.distributed.distributed_c10d", "Work", "wait", _waiting)]
)
"""What to install while a scope is active, where torch.distributed is loaded."""

PATCHES = Patches(
    [Replacement(torch._C.Future, name, _calling_back) for name in ("then", "add_done_callback")]
)
"""What to install while a scope is active."""
