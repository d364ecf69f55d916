"""Pins of what a call of Python reads, and escapes of what it gives away.

See `recoup._patching.entry_points`, which wraps these calls.
"""

import contextlib
import threading
from collections.abc import Iterable, Iterator

import torch

from recoup import _C

_MODES = torch._C.DispatchKeySet(torch._C._dispatch_key_parse("FuncTorchDynamicLayerFrontMode"))
_MODES = _MODES.add(torch._C._dispatch_key_parse("FuncTorchDynamicLayerBackMode"))


class _ThreadState(threading.local):
    """What this thread's outermost reading call has pinned, by storage; None outside such calls."""

    pins: dict[int, _C.Pin] | None = None
    saved: dict[int, torch.Tensor] | None = None
    """Of each storage that the call is to write one by one; see `entry_points._saving_each`."""


thread = _ThreadState()


@contextlib.contextmanager
def held_pins() -> Iterator[dict[int, _C.Pin]]:
    """Pins by storage, for `pin` to add to; they are released at the end."""
    pins: dict[int, _C.Pin] = {}
    try:
        yield pins
    finally:
        for each in pins.values():
            each.release()


@contextlib.contextmanager
def reading_pins() -> Iterator[dict[int, _C.Pin]]:
    """Those of this thread's outermost reading call, which this is if there is none."""
    if thread.pins is not None:
        yield thread.pins
        return
    with held_pins() as pins:
        thread.pins = pins
        try:
            yield pins
        finally:
            thread.pins = None


@contextlib.contextmanager
def unseen() -> Iterator[None]:
    """For our own use: neither the engine nor a mode of functorch's sees this thread's ops."""
    was = _C.set_unseen(True)
    try:
        with torch._C._ExcludeDispatchKeyGuard(_MODES):
            yield
    finally:
        _C.set_unseen(was)


def pin(thing: object, pins: dict[int, _C.Pin]) -> None:
    """Adds a pin of a tensor's or storage's bytes, unless `pins` has it; ignores anything else."""
    if isinstance(thing, torch.TypedStorage):
        thing = thing._untyped_storage
    if isinstance(thing, torch.UntypedStorage):
        if thing._cdata not in pins:
            pins[thing._cdata] = _C.pin(_C.alias_of(thing))
    # Sparse tensors and wrapper subclasses have no storage and are not ours.
    elif isinstance(thing, torch.Tensor) and torch._C._has_storage(thing):
        key = torch._C._storage_address(thing)  # type: ignore[attr-defined]
        if key not in pins:
            pins[key] = _C.pin(thing)


def pin_each(things: Iterable[object], pins: dict[int, _C.Pin]) -> None:
    for thing in things:
        pin(thing, pins)


def escape(thing: object) -> None:
    """A tensor or storage gives its pointer away; anything else is ignored."""
    if isinstance(thing, torch.UntypedStorage):
        _C.escape(_C.alias_of(thing))
    elif isinstance(thing, torch.Tensor):
        _C.escape(thing)
