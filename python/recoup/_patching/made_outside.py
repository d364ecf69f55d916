"""Wrappers of functions that make bytes outside of any op, or move them out of the pool.

What is made is charged, and where its size is known room is made first.
`recoup._patching.entry_points` says which functions these are.
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
    """Charges what was made outside of any op; ignores anything else."""
    if isinstance(thing, torch.UntypedStorage):
        if thing.device.type != "meta":
            _C.charge(_C.alias_of(thing))
    elif isinstance(thing, torch.Tensor) and torch._C._has_storage(thing):
        _C.charge(thing)


def making(original: _Function) -> _Function:
    """Makes a tensor or storage of bytes that are there, or comes with them."""

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        made = original(*args, **kwargs)
        charge(made)
        return made

    return wrapper


def making_sized(original: _Function) -> _Function:
    """The same; the last number among the arguments is the size in bytes."""

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
    """Maps a file. A private mapping takes memory where tensors show it, and is charged there."""
    shared = making_sized(original)

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        is_shared = kwargs.get("shared", args[1] if len(args) > 1 else False)
        return (shared if is_shared else original)(*args, **kwargs)

    return wrapper


@contextlib.contextmanager
def _made_anew(storage: torch.UntypedStorage, size_bytes: int) -> Iterator[None]:
    """So many bytes are made for a storage in here, outside of the pool: there is room for them."""
    reserved = _C.Reservation(size_bytes)
    try:
        yield
    finally:
        reserved.release()
    charge(storage)


def sharing(original: _Function) -> _Function:
    """Moves a storage's bytes to shared memory, unless they are there: both exist for a moment."""

    @functools.wraps(original)
    def wrapper(storage: torch.UntypedStorage, *args: Any, **kwargs: Any) -> Any:
        escape(storage)
        with (
            _made_anew(storage, 0 if storage.is_shared() else storage.nbytes()),
            # The copy goes to a storage that gives its bytes away; they are reserved already.
            unseen(),
        ):
            return original(storage, *args, **kwargs)

    return wrapper


def resizing(original: _Function) -> _Function:
    """Old and new bytes exist for a moment. Those of the pool are charged by the allocator.

    Of the pool's it is the death of the old content, which stays where something needs it, and a
    one is made: FSDP frees a parameter so, and has it again.
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
