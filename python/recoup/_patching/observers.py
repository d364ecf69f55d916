"""Tells the engine while a profiler inspects the arguments of ops, which may be evicted.

See observers.cpp. This costs time at each op, so it is on only while a profiler runs. It excludes
`ExecutionTraceObserver`, which reads the bytes of integer tensors and would find none.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.autograd.profiler
import torch.autograd.profiler_legacy

from recoup import _C
from recoup._patching.patches import Patches, Replacement

_running: set[str] = set()
_scopes: set[object] = set()


def _starting(kind: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            _running.add(kind)
            _C.let_observers_look(True)  # puts our first observer before the profiler's
            try:
                return original(*args, **kwargs)
            finally:
                _C.let_observers_look(True)  # and our last one after it

        return wrapper

    return make


def _stopping(kind: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            try:
                return original(*args, **kwargs)
            finally:
                _running.discard(kind)
                if not _running:
                    _C.let_observers_look(False)

        return wrapper

    return make


_PROFILER = ("_enable_profiler", "_disable_profiler")
_LEGACY = ("_enable_profiler_legacy", "_disable_profiler_legacy")
# Modules that have these functions as names of their own.
_OWNERS = {
    _PROFILER: (torch._C._autograd, torch.autograd, torch.autograd.profiler),
    _LEGACY: (torch._C._autograd, torch.autograd, torch.autograd.profiler_legacy),
}

PATCHES = Patches(
    [
        row
        for (start, stop), owners in _OWNERS.items()
        for owner in owners
        for row in (
            Replacement(owner, start, _starting(start)),
            Replacement(owner, stop, _stopping(start)),
        )
    ]
)
"""Installed while a scope is active."""


def enter(scope: object) -> None:
    """Begins a scope; a profiler may be running already."""
    _scopes.add(scope)
    if torch._C._autograd._profiler_enabled():
        _running.add(_PROFILER[0])
        _C.let_observers_look(True)


def leave(scope: object) -> None:
    """Ends a scope; does nothing for one that has not begun."""
    if scope not in _scopes:
        return
    if _running and len(_scopes) == 1:
        _C.let_observers_look(False)
        _running.clear()
    _scopes.discard(scope)
