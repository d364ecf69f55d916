"""Pins of tensors that a Python call reads, and escapes of tensors whose address it gives away.

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
    """Pins of the thread's outermost reading call, by storage; None outside such calls."""

    pins: dict[int, _C.Pin] | None = None
    saved: dict[int, torch.Tensor] | None = None
    """Storages that the call will write one by one; see `entry_points._saving_each`."""


thread = _ThreadState()


@contextlib.contextmanager
def held_pins() -> Iterator[dict[int, _C.Pin]]:
    """A dictionary of pins by storage, for `pin`; its pins are released at the end."""
    pins: dict[int, _C.Pin] = {}
    try:
        yield pins
    finally:
        for each in pins.values():
            each.release()


@contextlib.contextmanager
def reading_pins() -> Iterator[dict[int, _C.Pin]]:
    """The pins of this thread's outermost reading call, which starts here if there is none."""
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
    """Hides ops of this thread, made by recoup itself, from the engine and functorch's modes."""
    was = _C.set_unseen(True)
    try:
        with torch._C._ExcludeDispatchKeyGuard(_MODES):
            yield
    finally:
        _C.set_unseen(was)


def pin(thing: object, pins: dict[int, _C.Pin]) -> None:
    """Pins a tensor's or storage's bytes, unless `pins` has them; ignores any other object."""
    if isinstance(thing, torch.TypedStorage):
        thing = thing._untyped_storage
    if isinstance(thing, torch.UntypedStorage):
        if thing._cdata not in pins:
            pins[thing._cdata] = _C.pin(_C.alias_of(thing))
    # Sparse tensors and wrapper subclasses have no storage, so recoup does not manage them.
    elif isinstance(thing, torch.Tensor) and torch._C._has_storage(thing):
        key = torch._C._storage_address(thing)  # type: ignore[attr-defined]
        if key not in pins:
            pins[key] = _C.pin(thing)


def pin_each(things: Iterable[object], pins: dict[int, _C.Pin]) -> None:
    for thing in things:
        pin(thing, pins)


def escape(thing: object) -> bool:
    """Records that a tensor's or storage's pointer is given away; ignores any other object.

    Returns whether it had not escaped before.
    """
    if isinstance(thing, torch.UntypedStorage):
        thing = _C.alias_of(thing)
    return isinstance(thing, torch.Tensor) and _C.escape(thing)
