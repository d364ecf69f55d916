"""Simulations on several threads: they release the interpreter lock."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def in_threads(
    call: Callable[[_Item], _Result], items: Iterable[_Item], threads: int | None
) -> Iterator[_Result]:
    """The result of each call, in the order of the items.

    An exception, such as that of Ctrl-C, ends the iteration without waiting for calls that run, and
    no other call begins.

    threads: the number of threads; None: as many as fit the machine.
    """
    pool = ThreadPoolExecutor(threads)
    try:
        yield from pool.map(call, items)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
