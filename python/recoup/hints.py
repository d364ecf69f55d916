"""Hints in error messages: the known name that is most similar to an unknown one."""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")
_T = TypeVar("_T")
_NOWHERE: Mapping[str, str] = MappingProxyType({})


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """'; did you mean ...?' with the known word most similar to `word`; empty if none is near."""
    import difflib  # loaded only after an error

    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def hint_keywords(
    *, elsewhere: Mapping[str, str] = _NOWHERE
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """A decorator: an unknown keyword argument raises a TypeError that names the similar one.

    elsewhere: names that belong elsewhere, each with a sentence that says where.
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        known = [name for name in inspect.signature(function).parameters if name != "self"]
        called = function.__qualname__.removesuffix(".__init__")

        @functools.wraps(function)
        def checked(*args: _P.args, **keywords: _P.kwargs) -> _R:
            for name in keywords:
                if name not in known:
                    where = elsewhere.get(name)
                    hint = did_you_mean(name, known) if where is None else f"; {where}"
                    raise TypeError(
                        f"{called}() has no argument {name!r}"
                        f"{hint or '; its arguments are ' + ', '.join(known)}"
                    )
            return function(*args, **keywords)

        return checked

    return decorate


def hint_fields(made: type[_T]) -> type[_T]:
    """A decorator of a dataclass: as `hint_keywords`, for its constructor."""
    made.__init__ = hint_keywords()(made.__init__)  # type: ignore[method-assign]
    return made
