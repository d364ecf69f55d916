"""How `recoup run` ends beside its program: the exit code of files that could not be written."""

import atexit
import contextlib
import ctypes
import os
import sys
from collections.abc import Callable

from recoup.commands.exit_codes import NOT_WRITTEN


class Ending:
    """The exit code is the program's own, unless it succeeded and a file could not be written.

    That is known when exit handlers run, where Python takes no other exit code. So the process ends
    in the last of all exit handlers: to be made before a library is loaded that has handlers too.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._has_failed = False
        self._is_incomplete = False
        atexit.register(self._end)

    def program_failed(self, error: BaseException) -> None:
        """The program ended with `error`; sys.exit(0) is no failure."""
        succeeded = isinstance(error, SystemExit) and error.code in (None, 0)
        self._has_failed = not succeeded

    def complete(self, write: Callable[[], bool]) -> None:
        """Calls what writes the files when the program is over, and returns whether all are there.

        What it raises passes through.
        """
        self._is_incomplete = True
        self._is_incomplete = not write()

    def _end(self) -> None:
        is_ours = os.getpid() == self._process  # a child that was forked has a copy
        if not self._is_incomplete or self._has_failed or not is_ours:
            return
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # it may be any object
                stream.flush()
        ctypes.CDLL(None).fflush(None)  # what C++ has printed
        os._exit(NOT_WRITTEN)
