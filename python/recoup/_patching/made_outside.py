"""Wrappers of functions that make bytes outside of any op, or move them out of the pool.

The new bytes are charged; if their size is known, room is made first.
`recoup._patching.entry_points` lists these functions.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from recoup import _C
from recoup._patching.call_pins import escape, held_pins, pin, unseen

_Function = Callable[..., Any]


def charge(thing: object) -> None:
    """Charges a tensor or storage made outside of any op; ignores any other object."""
    if isinstance(thing, torch.UntypedStorage):
        if thing.device.type != "meta":
            _C.charge(_C.alias_of(thing))
    elif isinstance(thing, torch.Tensor) and torch._C._has_storage(thing):
        _C.charge(thing)


def making(original: _Function) -> _Function:
    """For functions that make a tensor or storage from existing bytes, or return one."""

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        made = original(*args, **kwargs)
        charge(made)
        return made

    return wrapper


def making_sized(original: _Function) -> _Function:
    """As `making`; the last integer among the arguments is the size in bytes."""

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        sizes = [argument for argument in (*args, *kwargs.values()) if type(argument) is int]
        reserved = _C.Reservation(sizes[-1] if sizes else 0)
        try:
            made = original(*args, **kwargs)
        finally:
            reserved.release()
        charge(made)
        return made

    return wrapper


def mapping(original: _Function) -> _Function:
    """For mapped files. A private mapping takes memory when tensors use it, and is charged then."""
    shared = making_sized(original)

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        is_shared = kwargs.get("shared", args[1] if len(args) > 1 else False)
        return (shared if is_shared else original)(*args, **kwargs)

    return wrapper


@contextlib.contextmanager
def _made_anew(storage: torch.UntypedStorage, size_bytes: int) -> Iterator[None]:
    """Makes room for bytes that the block allocates for a storage outside of the pool."""
    reserved = _C.Reservation(size_bytes)
    try:
        yield
    finally:
        reserved.release()
    charge(storage)


def sharing(original: _Function) -> _Function:
    """For moving a storage's bytes to shared memory: for a moment both copies exist."""

    @functools.wraps(original)
    def wrapper(storage: torch.UntypedStorage, *args: Any, **kwargs: Any) -> Any:
        escape(storage)
        with (
            _made_anew(storage, 0 if storage.is_shared() else storage.nbytes()),
            # The copy's target bypasses the pool; its bytes are reserved already.
            unseen(),
        ):
            return original(storage, *args, **kwargs)

    return wrapper


def resizing(original: _Function) -> _Function:
    """For resizing: for a moment old and new bytes exist. The allocator charges those of the pool.

    A resized storage of the pool gets a new content; the old one dies, and is kept if a value needs
    it. FSDP frees a parameter and allocates it again in this way.
    """

    @functools.wraps(original)
    def wrapper(storage: torch.UntypedStorage, size: Any) -> Any:
        alias = _C.alias_of(storage)
        if not _C.in_pool(alias):
            escape(storage)
        outside = type(size) is int and _C.grows_outside(alias)
        with _made_anew(storage, size if outside else 0), held_pins() as pins:
            pin(storage, pins)
            return original(storage, size)

    return wrapper
