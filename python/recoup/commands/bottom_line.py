"""Shows a line in the last row of a terminal while a program prints above it."""

import contextlib
import os
import subprocess

from recoup.commands.descriptors import Descriptor

# Save and restore the cursor and its colors, so that the program does not notice the line.
_KEEP, _BACK = "\x1b7", "\x1b8"
_WHOLE_SCREEN = "\x1b[r"
# Scrolls all rows up by one if the cursor is in the last row; else has no effect.
_LEAVE_LAST_ROW = "\x1bD\x1b[A"
# A row number beyond the screen selects the last row.
_ERASE_LAST_ROW = "\x1b[9999;1H\x1b[0m\x1b[2K"
_RESTORE = f"{_KEEP}{_WHOLE_SCREEN}{_ERASE_LAST_ROW}{_BACK}"

# Restores the terminal if its standard input ends before a word arrives.
_GUARD = 'exec 3<&0; { read -r word || printf %s "$1"; } <&3 &'
_LEAST_ROWS = 3


class BottomLine:
    """Sets the scroll region of the terminal to the rows above the last one.

    The terminal then scrolls those rows for all output, so the program's output need not be
    intercepted: writes by `os.write`, C++ code or child processes, and its own progress bars.
    """

    def __init__(self, terminal: int) -> None:
        # A duplicate, because the program may close or replace its stderr.
        self._terminal: Descriptor | None = Descriptor(os.dup(terminal))
        self._guard: Descriptor | None = None
        self._size: os.terminal_size | None = None
        os.register_at_fork(after_in_child=self._close_files)

    @staticmethod
    def fits(terminal: int) -> bool:
        """Whether the size of the terminal is known and large enough."""
        with contextlib.suppress(OSError):
            size = os.get_terminal_size(terminal)
            return size.lines >= _LEAST_ROWS and size.columns > 1
        return False

    def show(self, text: str) -> None:
        """Shows as much of `text` as fits. Has no effect if the terminal is closed or too small."""
        terminal = self._terminal
        if terminal is None or not terminal.is_there() or not self.fits(terminal.number):
            return
        if self._guard is None:
            self._start_guard(terminal.number)
        size = os.get_terminal_size(terminal.number)
        frame = ""
        if size != self._size:
            frame = f"{_KEEP}{_WHOLE_SCREEN}{_BACK}{_LEAVE_LAST_ROW}"
        # A program that resets the terminal also resets the scroll region, so set it each time.
        frame += (
            f"{_KEEP}\x1b[1;{size.lines - 1}r\x1b[{size.lines};1H\x1b[0m"
            f"{text[: size.columns - 1]}\x1b[K{_BACK}"
        )
        self._size = size
        with contextlib.suppress(OSError):
            terminal.write(frame.encode(errors="replace"))

    def close(self) -> None:
        """Erases the line and restores the scroll region."""
        if self._terminal is not None and self._size is not None:
            with contextlib.suppress(OSError):
                self._terminal.write(_RESTORE.encode())
        if self._guard is not None:
            with contextlib.suppress(OSError):
                self._guard.write(b"done\n")
        self._close_files()

    def _start_guard(self, terminal: int) -> None:
        """Starts a shell that restores the terminal if this process is killed or calls `os._exit`.

        The shell is not a child of this process, because the program might wait for its children.
        It runs in its own session, so Ctrl-C does not reach it.
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

    def _close_files(self) -> None:
        for descriptor in (self._terminal, self._guard):
            if descriptor is not None:
                descriptor.close()
        self._terminal = self._guard = None
