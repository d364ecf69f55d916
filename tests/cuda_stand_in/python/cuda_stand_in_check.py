"""The checks of the stand-in for CUDA, by name."""

from collections.abc import Callable

CHECKS: dict[str, Callable[[], None]] = {}


def check(function: Callable[[], None]) -> Callable[[], None]:
    CHECKS[function.__name__] = function
    return function
