"""When a collective of `torch.distributed` has finished: Note [In flight] in in_flight.h."""

import functools
from collections.abc import Callable
from typing import Any

from recoup import _C
from recoup.late_patches import LatePatches, LateReplacement


def _waiting(original: Callable[..., bool]) -> Callable[..., bool]:
    """Some works never say that they are complete, so the end of a wait is told."""

    @functools.wraps(original)
    def wrapper(work: Any, *args: Any, **kwargs: Any) -> bool:
        done = original(work, *args, **kwargs)
        if done:
            _C.waited(work)
        return done

    return wrapper


PATCHES = LatePatches(
    [LateReplacement("torch.distributed.distributed_c10d", "Work", "wait", _waiting)]
)
"""What to install while a scope is active."""
