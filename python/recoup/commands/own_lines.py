"""Output of recoup on stderr while a program runs that may close or replace its streams."""

import contextlib
import os
import sys

from recoup.commands.descriptors import Descriptor


class OwnLines:
    """Writes lines to the file that was stderr when this object was made, and to no other file.

    If the program closed or replaced stderr, or had none, nothing is written. Text that the program
    has not flushed appears after these lines, in one piece.
    """

    def __init__(self) -> None:
        self._stream = sys.stderr
        self._file: Descriptor | None = None
        with contextlib.suppress(AttributeError, OSError, ValueError):
            self._file = Descriptor(self._stream.fileno())

    @property
    def terminal(self) -> int | None:
        """The descriptor of stderr if it is a terminal that can move its cursor, else None."""
        file = self._file
        if file is None or not file.is_there() or not os.isatty(file.number):
            return None
        if os.environ.get("TERM", "") in ("", "dumb", "unknown"):
            return None
        return file.number

    def say(self, *lines: str) -> None:
        """Writes the lines. Errors are ignored, so that the program continues."""
        text = "".join(f"{line}\n" for line in lines)
        with contextlib.suppress(OSError, ValueError):
            if self._file is not None:
                encoding = getattr(self._stream, "encoding", None) or "utf-8"
                self._file.write(text.encode(encoding, "backslashreplace"))
            elif self._stream is not None:
                self._stream.write(text)
                self._stream.flush()

    def say_at_the_end(self, *lines: str) -> None:
        """As `say`, after the program ended: on a terminal, starts below an unfinished line."""
        if self._file is not None and (terminal := self.terminal) is not None:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):  # a program may put any object there
                    if stream.isatty():
                        stream.flush()
            with contextlib.suppress(OSError):
                # A full row of spaces wraps to the next row unless the cursor was at the left edge.
                columns = os.get_terminal_size(terminal).columns
                self._file.write(b" " * columns + b"\r")
        self.say(*lines)
