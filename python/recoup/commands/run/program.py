"""Finds and runs the program of `recoup run` as `python` would."""

import argparse
import builtins
import functools
import importlib.machinery
import io
import os
import runpy
import sys
import types
from collections.abc import Callable
from typing import Any

import recoup
from recoup.commands.exit_codes import OUT_OF_BUDGET
from recoup.commands.programs import cannot_open as cannot_open
from recoup.errors import OutOfBudgetError


def find_program(options: argparse.Namespace) -> Callable[[], None]:
    """Returns a function that runs the program as `python` would.

    Sets `sys.argv` and `sys.path`. Raises OSError if the program cannot be opened.
    """
    sys.argv = [options.script, *options.args]
    if (code := getattr(options, "code", None)) is not None:
        _set_first_path("")
        return functools.partial(_run_text, "<string>", code.encode())
    if options.script == "-":
        _set_first_path("")
        source = sys.stdin.buffer.read()
        name = "<stdin>"
        return functools.partial(_run_text, name, source, __file__=name, __cached__=None)
    if options.is_module:
        _set_first_path(os.getcwd())
        return functools.partial(_run_module, options.script)
    # Absolute, as Python shows it in tracebacks and in __file__.
    path = os.path.abspath(options.script)
    if os.path.isdir(path) or path.endswith((".zip", ".pyz")):
        # runpy runs the __main__.py inside and sets sys.path[0].
        _set_first_path(None)
        return functools.partial(_run_path, path)
    with io.open_code(path) as file:
        source = file.read()
    _set_first_path(os.path.dirname(os.path.realpath(path)))
    return functools.partial(_run_script, path, source)


def run_as_python(
    program: Callable[[], None], failed: Callable[[BaseException], None] | None = None
) -> None:
    """Runs the program. Its exceptions pass through, after a call of `failed`.

    The traceback that Python prints has no frames of recoup. An OutOfBudgetError ends the process
    with the exit code OUT_OF_BUDGET.
    """
    try:
        program()
    except BaseException as error:
        if failed is not None:
            failed(error)
        # The printed traceback starts in the program, even if the program has set its own hook.
        sys.excepthook = functools.partial(_call_hook_without_our_frames, sys.excepthook)
        raise


def _set_first_path(folder: str | None) -> None:
    """Replaces the folder of recoup's own program in `sys.path`; safe-path mode has none."""
    if getattr(sys.flags, "safe_path", False):
        return
    sys.path[:1] = [] if folder is None else [folder]


def _run_script(path: str, source: bytes) -> None:
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    _run_text(path, source, __file__=path, __cached__=None, __loader__=loader)


def _run_text(path: str, source: bytes, **names: Any) -> None:
    # A new `__main__`, because pickle, multiprocessing and `import __main__` look for it.
    main_module = types.ModuleType("__main__")
    namespace: dict[str, Any] = main_module.__dict__
    namespace.update(__annotations__={}, __builtins__=builtins, **names)
    _replaced.append(sys.modules["__main__"])
    sys.modules["__main__"] = main_module
    exec(compile(source, path, "exec", dont_inherit=True), namespace)


# The `__main__` modules of recoup, kept alive because their globals are cleared with them.
_replaced: list[types.ModuleType] = []


def _run_module(name: str) -> None:
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _run_path(path: str) -> None:
    runpy.run_path(path, run_name="__main__")


def _call_hook_without_our_frames(
    hook: Callable[..., Any],
    kind: type[BaseException],
    error: BaseException,
    traceback: types.TracebackType | None,
) -> None:
    # The whole package, because its __main__.py is outside this folder.
    ours = (os.path.dirname(recoup.__file__) + os.sep, "<frozen runpy>", runpy.__file__)
    inner = traceback
    # The first frames are those of the launcher, of recoup and of runpy.
    last_of_ours = None
    while inner is not None:
        if inner.tb_frame.f_code.co_filename.startswith(ours):
            last_of_ours = inner
        elif last_of_ours is not None:
            break
        inner = inner.tb_next
    # A program that does not compile has no frame: the error has the place.
    if last_of_ours is not None:
        traceback = inner
    hook(kind, error.with_traceback(traceback), traceback)
    if isinstance(error, OutOfBudgetError):
        raise SystemExit(OUT_OF_BUDGET)  # the exit code of a hook becomes that of Python
