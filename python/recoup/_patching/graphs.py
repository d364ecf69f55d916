"""CUDA graphs that a program captures within a budget.

The engine takes part in a capture: Note [Captured graphs] in csrc/torch/api/captured_graph.cpp. It
must know when a capture begins and ends, and of each launch. PyTorch calls its allocator at the end
of a capture when it is too late for another node, so the methods of `torch.cuda.CUDAGraph` are
replaced.
"""

import functools
import sys
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from recoup import _C
from recoup._patching.patches import Patches, Replacement
from recoup.errors import OutOfBudgetError


class _Capture(NamedTuple):
    captured: _C.CapturedGraph
    end: Callable[[], object]
    """Removes the replacement of `reset` for this capture."""


_OPEN: "weakref.WeakKeyDictionary[Any, _Capture]" = weakref.WeakKeyDictionary()
"""The captures under way within budgets, by graph."""
_ENDED: "weakref.WeakKeyDictionary[Any, _Capture]" = weakref.WeakKeyDictionary()
"""Those that have ended. A capture releases its memory when its graph dies."""


def _begin(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def capture_begin(graph: Any, *args: Any, **kwargs: Any) -> None:
        captured = _C.begin_capture(torch.cuda.current_device())
        if captured is None:
            return original(graph, *args, **kwargs)
        try:
            original(graph, *args, **kwargs)
        except BaseException:
            captured.end(captured=False)
            raise
        user = object()
        RESETS.install(user)
        end = weakref.finalize(graph, RESETS.forget, user)
        end.atexit = False
        _OPEN[graph] = _Capture(captured, end)

    return capture_begin


def _end(original: Callable[[Any], None]) -> Callable[[Any], None]:
    @functools.wraps(original)
    def capture_end(graph: Any) -> None:
        capture = _OPEN.pop(graph, None)
        if capture is None:
            return original(graph)
        _ENDED[graph] = capture
        error_of_program = sys.exc_info()[1]
        is_captured = fits = False
        try:
            try:
                capture.captured.close()
                fits = True
            except OutOfBudgetError:
                if error_of_program is None:
                    raise
            finally:
                original(graph)
            is_captured = fits
        finally:
            capture.captured.end(captured=is_captured)

    return capture_end


def _replay(original: Callable[[Any], None]) -> Callable[[Any], None]:
    @functools.wraps(original)
    def replay(graph: Any) -> None:
        capture = _ENDED.get(graph)
        if capture is None:
            _C.launch_graph_from_outside()
        else:
            capture.captured.replay()
        original(graph)

    return replay


def _reset(original: Callable[[Any], None]) -> Callable[[Any], None]:
    @functools.wraps(original)
    def reset(graph: Any) -> None:
        original(graph)
        capture = _ENDED.pop(graph, None)
        if capture is not None:
            capture.captured.release()
            capture.end()

    return reset


def _of_base(name: str, make: Callable[[Any], Any]) -> list[Replacement]:
    """A row of the base class: bound methods that the program took earlier call it, too.

    In a PyTorch without CUDA that class has no methods, and nothing is captured.
    """
    base = torch.cuda.CUDAGraph.__mro__[1]
    return [Replacement(base, name, make)] if torch.version.cuda is not None else []


PATCHES = Patches(
    [
        Replacement(torch.cuda.CUDAGraph, "capture_begin", _begin),
        Replacement(torch.cuda.CUDAGraph, "capture_end", _end),
        Replacement(torch.cuda.CUDAGraph, "capture_end_pre", _end, since="2.14"),
        *_of_base("replay", _replay),
    ]
)
"""In force while a scope is active."""
RESETS = Patches(_of_base("reset", _reset))
"""In force as long as there is a graph that was captured in a budget."""
