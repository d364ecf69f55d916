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

On a GPU, arrays of CuPy, Numba or Warp hold a tensor and its address in objects that do show the
reference. So only references by modules, optimizers, global variables of the main script, and
Python's containers in them count as known. A CUDA graph may use any address: while one exists, no
tensor is offered.
"""

import collections
import gc
import sys
import threading
import warnings
from collections.abc import Iterable

import torch

from recoup import _C
from recoup.warning import RecoupWarning

WATCHER = "recoup-watcher"
"""Name of recoup's own thread, which uses no tensor."""

_CONTAINERS = (dict, list, tuple, set, frozenset, collections.deque)


def offer(engine: _C.Engine, device: torch.device) -> None:
    """Offers all tensors that may be taken over to the spill tier of the entered scope."""
    objects = gc.get_objects()
    if reason := _reason_against(objects, device):
        if any(issubclass(type(each), torch.Tensor) for each in objects):
            warnings.warn(
                "recoup: tensors that were made before the scope cannot be spilled, because "
                f"{reason}",
                RecoupWarning,
                stacklevel=3,
            )
        return
    holders = objects if device.type == "cpu" else _holders_without_addresses(objects)
    tensors, known = _C.tensors_among(objects, holders)
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


def _reason_against(objects: Iterable[object], device: torch.device) -> str:
    """Why any tensor may be in use by other code; empty if no tensor is."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    ours = {number for number, name in names.items() if name == WATCHER}
    others = sys._current_frames().keys() - {threading.get_ident()} - ours
    if others:
        running = ", ".join(sorted(names.get(other, "an unnamed thread") for other in others))
        return (
            f"other Python threads are running and may use them: {running}. Open the scope before "
            "these threads start, or make the model inside the scope"
        )
    if device.type == "cuda" and any(
        issubclass(type(each), torch.cuda.CUDAGraph) for each in objects
    ):
        return (
            "a CUDA graph exists and may use their addresses. Delete the graph before the scope, "
            "or make the model inside the scope"
        )
    return ""


def _holders_without_addresses(objects: Iterable[object]) -> list[object]:
    """Objects that may refer to a tensor and do not keep its address."""
    holders = (torch.nn.Module, torch.optim.Optimizer)
    found: dict[int, object] = {}
    waiting: list[object] = [each for each in objects if issubclass(type(each), holders)]
    waiting.append(vars(sys.modules["__main__"]))
    while waiting:
        each = waiting.pop()
        if id(each) not in found:
            found[id(each)] = each
            waiting += (
                inner for inner in gc.get_referents(each) if issubclass(type(inner), _CONTAINERS)
            )
    return list(found.values())
