"""What recoup says on stderr beside a program, which may do with its streams what it likes."""

import contextlib
import os
import sys

from recoup.commands.descriptors import Descriptor


class OwnLines:
    """Lines of ours on what stderr was when this was made; never on anything else.

    A program may close stderr, put a file in its place or have had none from the start: then
    nothing is said. What it has not flushed stays behind our lines, and so in one piece.
    """

    def __init__(self) -> None:
        self._stream = sys.stderr
        self._file: Descriptor | None = None
        with contextlib.suppress(AttributeError, OSError, ValueError):
            self._file = Descriptor(self._stream.fileno())

    @property
    def terminal(self) -> int | None:
        """The descriptor when it is a terminal that can move its cursor, else None."""
        file = self._file
        if file is None or not file.is_there() or not os.isatty(file.number):
            return None
        if os.environ.get("TERM", "") in ("", "dumb", "unknown"):
            return None
        return file.number

    def say(self, *lines: str) -> None:
        """Writes them whole. What cannot be written is lost: the program goes on."""
        text = "".join(f"{line}\n" for line in lines)
        with contextlib.suppress(OSError, ValueError):
            if self._file is not None:
                encoding = getattr(self._stream, "encoding", None) or "utf-8"
                self._file.write(text.encode(encoding, "backslashreplace"))
            elif self._stream is not None:
                self._stream.write(text)
                self._stream.flush()

    def say_at_the_end(self, *lines: str) -> None:
        """The same when the program is over: on a terminal below what it has not ended."""
        if self._file is not None and (terminal := self.terminal) is not None:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):  # it may be any object
                    if stream.isatty():
                        stream.flush()
            with contextlib.suppress(OSError):
                # A row of spaces wraps, unless the cursor was at the left already.
                columns = os.get_terminal_size(terminal).columns
                self._file.write(b" " * columns + b"\r")
        self.say(*lines)
