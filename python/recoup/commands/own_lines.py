"""What recoup says on stderr beside a program, which may do with its streams what it likes."""

import contextlib
import os
import sys


class OwnLines:
    """Lines of ours on what stderr was when this was made; never on anything else.

    A program may close stderr, put a file in its place or have had none from the start: then
    nothing is said. What it has not flushed stays behind our lines, and so in one piece.
    """

    def __init__(self) -> None:
        self._stream = sys.stderr
        self._descriptor: int | None = None
        with contextlib.suppress(AttributeError, OSError, ValueError):
            descriptor = self._stream.fileno()
            self._file = _file_of(descriptor)
            self._descriptor = descriptor

    @property
    def terminal(self) -> int | None:
        """The descriptor when it is a terminal that can move its cursor, else None."""
        if self._descriptor is None or not os.isatty(self._descriptor):
            return None
        if os.environ.get("TERM", "") in ("", "dumb", "unknown"):
            return None
        return self._descriptor

    def say(self, *lines: str) -> None:
        """Writes them whole. What cannot be written is lost: the program goes on."""
        text = "".join(f"{line}\n" for line in lines)
        with contextlib.suppress(OSError, ValueError):
            if self._descriptor is not None:
                encoding = getattr(self._stream, "encoding", None) or "utf-8"
                self._write(text.encode(encoding, "backslashreplace"))
            elif self._stream is not None:
                self._stream.write(text)
                self._stream.flush()

    def say_at_the_end(self, *lines: str) -> None:
        """The same when the program is over: on a terminal below what it has not ended."""
        if (terminal := self.terminal) is not None and _file_of(terminal) == self._file:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):  # it may be any object
                    if stream.isatty():
                        stream.flush()
            with contextlib.suppress(OSError):
                # A row of spaces wraps, unless the cursor was at the left already.
                columns = os.get_terminal_size(terminal).columns
                self._write(b" " * columns + b"\r")
        self.say(*lines)

    def _write(self, content: bytes) -> None:
        descriptor = self._descriptor
        if descriptor is None or _file_of(descriptor) != self._file:
            return
        while content:
            content = content[os.write(descriptor, content) :]


def _file_of(descriptor: int) -> tuple[int, int]:
    """What is open there, whatever its number. Raises OSError when nothing is."""
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino
