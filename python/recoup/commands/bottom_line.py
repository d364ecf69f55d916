"""The last row of a terminal for a line of ours, while a program prints above it."""

import contextlib
import os
import subprocess

from recoup.commands.descriptors import Descriptor

# The cursor and its colors are kept, and put back: the program does not know that we were here.
_KEEP, _BACK = "\x1b7", "\x1b8"
_WHOLE_SCREEN = "\x1b[r"
# If the cursor is in the last row, all rows move up by one; else nothing happens.
_LEAVE_LAST_ROW = "\x1bD\x1b[A"
# A row below all others is the last one.
_ERASE_LAST_ROW = "\x1b[9999;1H\x1b[0m\x1b[2K"
_RESTORE = f"{_KEEP}{_WHOLE_SCREEN}{_ERASE_LAST_ROW}{_BACK}"

# Restores the terminal when its standard input ends without a word, and says nothing else.
_GUARD = 'exec 3<&0; { read -r word || printf %s "$1"; } <&3 &'
_LEAST_ROWS = 3


class BottomLine:
    """Rows above the last scroll by themselves, whoever prints: the terminal sees to it.

    So nothing of the program's output has to be seen or held back: not what it writes with
    `os.write`, not what C++ or a child process prints, not a progress bar of its own.
    """

    def __init__(self, terminal: int) -> None:
        # Of our own: the program may close its stderr, or put a file there.
        self._terminal: Descriptor | None = Descriptor(os.dup(terminal))
        self._guard: Descriptor | None = None
        self._size: os.terminal_size | None = None
        os.register_at_fork(after_in_child=self._let_go)

    @staticmethod
    def fits(terminal: int) -> bool:
        """Whether the terminal has a size, and rows enough."""
        with contextlib.suppress(OSError):
            size = os.get_terminal_size(terminal)
            return size.lines >= _LEAST_ROWS and size.columns > 1
        return False

    def show(self, text: str) -> None:
        """Shows `text`, as much of it as fits. A terminal that is gone or too small shows none."""
        terminal = self._terminal
        if terminal is None or not terminal.is_there() or not self.fits(terminal.number):
            return
        if self._guard is None:
            self._start_guard(terminal.number)
        size = os.get_terminal_size(terminal.number)
        frame = ""
        if size != self._size:
            frame = f"{_KEEP}{_WHOLE_SCREEN}{_BACK}{_LEAVE_LAST_ROW}"
        # A program that resets the terminal takes the row; it is set apart again each time.
        frame += (
            f"{_KEEP}\x1b[1;{size.lines - 1}r\x1b[{size.lines};1H\x1b[0m"
            f"{text[: size.columns - 1]}\x1b[K{_BACK}"
        )
        self._size = size
        with contextlib.suppress(OSError):
            terminal.write(frame.encode(errors="replace"))

    def close(self) -> None:
        """Gives the row back, empty."""
        if self._terminal is not None and self._size is not None:
            with contextlib.suppress(OSError):
                self._terminal.write(_RESTORE.encode())
        if self._guard is not None:
            with contextlib.suppress(OSError):
                self._guard.write(b"done\n")
        self._let_go()

    def _start_guard(self, terminal: int) -> None:
        """For a process that is killed, or calls `os._exit`: nobody else would give the row back.

        No child of ours, which the program might wait for; nor does Ctrl-C reach it.
        """
        theirs, ours = os.pipe()
        self._guard = Descriptor(ours)
        with contextlib.suppress(OSError):
            subprocess.run(
                ["/bin/sh", "-c", _GUARD, "sh", _RESTORE],
                stdin=theirs,
                stdout=terminal,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                check=False,
            )
        os.close(theirs)

    def _let_go(self) -> None:
        for descriptor in (self._terminal, self._guard):
            if descriptor is not None:
                descriptor.close()
        self._terminal = self._guard = None
