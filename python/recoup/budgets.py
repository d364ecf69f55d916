"""The object that opens a scope: a context manager and a decorator."""

import functools
import inspect
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from recoup import _C
from recoup.run import Run
from recoup.setup import Setup

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Budget:
    """Result of `recoup.budget`: a context manager or a decorator. Each use makes a new `Run`."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        """The parameters of each run."""
        self._runs: list[Run] = []

    def _make_run(self) -> Run:
        return Run(self.setup)

    if TYPE_CHECKING:

        def __enter__(self) -> Run: ...
        def __exit__(
            self,
            kind: type[BaseException] | None,
            error: BaseException | None,
            traceback: TracebackType | None,
        ) -> None: ...
    else:  # in C++, which an interrupt cannot end halfway: see scope_module.cpp
        __enter__ = _C.method(_C.enter_scope)
        __exit__ = _C.method(_C.exit_scope)

    def __call__(self, function: Callable[_P, _T]) -> Callable[_P, _T]:
        """Returns `function` with the scope around each call.

        Raises TypeError for coroutines and generators, whose bodies do not run in the call.
        """
        if (
            inspect.iscoroutinefunction(function)
            or inspect.isgeneratorfunction(function)
            or inspect.isasyncgenfunction(function)
        ):
            raise TypeError(
                "recoup.budget decorates plain functions only; inside a coroutine or a "
                "generator, write `with recoup.budget(...):`"
            )

        @functools.wraps(function)
        def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            with Budget(self.setup):
                return function(*args, **kwargs)

        return wrapper
