"""Finds tensors made before a scope whose memory the spill tier may take over.

With a spill tier, recoup returns the memory of a model that was made outside the scope when room is
short: its bytes are in the pool or in the tier from then on. No code may hold their address then.
Code that takes the address inside the scope (NumPy, DLPack, raw pointers) is noticed. Code that
took it before leaves one trace: a reference to the tensor that no Python container has, because
NumPy's arrays and capsules hold one and do not show it to the garbage collector. So a storage may
be taken over if the collector finds every reference to each of its tensors, and if no other thread
could use it while its memory is returned: offers require that no other Python thread runs when the
scope begins, and they end when one starts. A tensor in a local variable of a running function
stays: inspecting frames would keep alive what is found.
"""

import _thread
import functools
import gc
import sys
import threading
import warnings
from collections.abc import Callable, Collection
from typing import Any

import torch

from recoup import _C
from recoup.warning import RecoupWarning


def offer(engine: _C.Budget) -> None:
    """Offers all tensors that may be taken over to the spill tier of the entered scope."""
    _tell_of_threads()
    others = sys._current_frames().keys() - {threading.get_ident()}
    if others:
        _warn_of(others)
        return
    objects = gc.get_objects()
    tensors, known = _C.tensors_among(objects)
    if not tensors:
        return
    tensors.append(torch.empty(0))
    known.append(0)
    objects.append(tensors[-1])  # held by these two lists, as all others, and by nothing else
    references = list(map(sys.getrefcount, tensors))
    accounted = [
        count - from_objects == references[-1]
        for count, from_objects in zip(references, known, strict=True)
    ]
    _C.offer(engine, tensors, accounted)


def _warn_of(others: Collection[int]) -> None:
    """Warns that existing tensors stay outside the tier, and why, if there are any."""
    if any(issubclass(type(each), torch.Tensor) for each in gc.get_objects()):
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        running = ", ".join(sorted(names.get(other, "an unnamed thread") for other in others))
        warnings.warn(
            "recoup: tensors that were made before the scope cannot be spilled, because other "
            f"Python threads are running and may use them: {running}. Open the scope before these "
            "threads start, or make the model inside the scope",
            RecoupWarning,
            stacklevel=4,
        )


@functools.cache
def _tell_of_threads() -> None:
    """Makes the start of a thread withdraw all offers.

    Since Python 3.12 an audit event reports it, see scope_module.cpp.
    """
    if sys.version_info >= (3, 12):
        return
    for module in (_thread, threading):
        for name in ("start_new_thread", "start_new", "_start_new_thread"):
            if start := getattr(module, name, None):
                setattr(module, name, _telling(start))


def _telling(start: Callable[..., int]) -> Callable[..., int]:
    @functools.wraps(start)
    def wrapper(*args: Any, **kwargs: Any) -> int:
        _C.withdraw_offers()
        return start(*args, **kwargs)

    return wrapper
