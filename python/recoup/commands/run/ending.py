"""The end of the process of `recoup run`, after its files are written."""

import atexit
import contextlib
import ctypes
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from recoup.commands.exit_codes import NOT_WRITTEN

if TYPE_CHECKING:
    from recoup.commands.run.termination import Termination


class Ending:
    """Keeps the exit code of the program, unless it succeeded and a file could not be written.

    If SIGTERM has ended the program, the process ends by that signal. Files are written in exit
    handlers, which cannot change how Python ends. So the last exit handler ends the process.
    Handlers run in reverse order, so this object must be made before a library is loaded that
    registers handlers.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._has_failed = False
        self._is_incomplete = False
        self._termination: Termination | None = None
        atexit.register(self._end)

    def program_failed(self, error: BaseException) -> None:
        """Records that the program ended with `error`; sys.exit(0) is not a failure."""
        succeeded = isinstance(error, SystemExit) and error.code in (None, 0)
        self._has_failed = not succeeded

    def complete(self, write: Callable[[], bool], termination: "Termination") -> None:
        """Calls `write` after the program ended; it returns whether all files were written.

        Exceptions of `write` pass through.
        """
        self._termination = termination
        termination.program_ended()
        self._is_incomplete = True
        self._is_incomplete = not write()

    def _end(self) -> None:
        is_ours = os.getpid() == self._process  # a forked child has a copy of the handler
        terminated = self._termination is not None and self._termination.has_arrived
        failed = self._is_incomplete and not self._has_failed
        if not is_ours or not (terminated or failed):
            return
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # a program may put any object there
                stream.flush()
        ctypes.CDLL(None).fflush(None)  # output of C++ code
        if terminated and self._termination is not None:
            self._termination.end_process()
        os._exit(NOT_WRITTEN)
