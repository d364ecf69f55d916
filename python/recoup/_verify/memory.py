"""Fills memory that a program has not written yet, so that reads of it are repeatable, and seen."""

import contextlib
import ctypes
import os
from collections.abc import Iterator

FILLS = 0x55, 0xAA
"""Two bytes for `filled`. As floating-point numbers their fills are finite and differ."""

_M_MMAP_MAX, _M_PERTURB = -4, -6  # constants of malloc.h
_MOST_MAPPED = 1 << 16  # glibc's default
_AIDS = "RECOUP_TEST_AIDS"


@contextlib.contextmanager
def filled(fill: int | None) -> Iterator[None]:
    """Fills memory until the context ends; None: it does not.

    glibc writes the byte into memory that is freed, and its complement into memory that it gives
    out. Other C libraries do not fill. In a scope of recoup, tensors have memory from its pool:
    with the first of `FILLS`, the pool overwrites what is freed; with the second it does not.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    with contextlib.ExitStack() as undo:
        if fill is not None and mallopt is not None:
            mallopt(_M_MMAP_MAX, 0)  # mapped memory is zero, not filled
            mallopt(_M_PERTURB, fill)
            undo.callback(mallopt, _M_MMAP_MAX, _MOST_MAPPED)
            undo.callback(mallopt, _M_PERTURB, 0)
        if fill == FILLS[0] and _AIDS not in os.environ:
            os.environ[_AIDS] = "poison"
            undo.callback(os.environ.pop, _AIDS, None)
        yield
