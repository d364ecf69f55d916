"""The exit code of `recoup run` if the program succeeded but a file could not be written."""

import atexit
import contextlib
import ctypes
import os
import sys
from collections.abc import Callable

from recoup.commands.exit_codes import NOT_WRITTEN


class Ending:
    """Keeps the exit code of the program, unless it succeeded and a file could not be written.

    Files are written in exit handlers, which cannot change Python's exit code. So the last exit
    handler ends the process. Handlers run in reverse order, so this object must be made before a
    library is loaded that registers handlers.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._has_failed = False
        self._is_incomplete = False
        atexit.register(self._end)

    def program_failed(self, error: BaseException) -> None:
        """Records that the program ended with `error`; sys.exit(0) is not a failure."""
        succeeded = isinstance(error, SystemExit) and error.code in (None, 0)
        self._has_failed = not succeeded

    def complete(self, write: Callable[[], bool]) -> None:
        """Calls `write` after the program ended; it returns whether all files were written.

        Exceptions of `write` pass through.
        """
        self._is_incomplete = True
        self._is_incomplete = not write()

    def _end(self) -> None:
        is_ours = os.getpid() == self._process  # a forked child has a copy of the handler
        if not self._is_incomplete or self._has_failed or not is_ours:
            return
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # a program may put any object there
                stream.flush()
        ctypes.CDLL(None).fflush(None)  # output of C++ code
        os._exit(NOT_WRITTEN)
