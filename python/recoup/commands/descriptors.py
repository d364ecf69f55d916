"""File descriptors that a program, unaware of them, may close or reuse for another file."""

import contextlib
import os


class Descriptor:
    """The file that is open under a descriptor now, not a later file with the same number."""

    def __init__(self, number: int) -> None:
        """Raises OSError if no file is open under `number`."""
        self.number = number
        self._file = _file_of(number)

    def is_there(self) -> bool:
        """Whether the descriptor still refers to the file."""
        with contextlib.suppress(OSError):
            return _file_of(self.number) == self._file
        return False

    def write(self, content: bytes) -> None:
        """Writes all of `content`, if the file is still open. Raises OSError if a write fails."""
        while content and self.is_there():
            content = content[os.write(self.number, content) :]

    def close(self) -> None:
        """Closes the file, if it is still open."""
        if self.is_there():
            os.close(self.number)


def _file_of(number: int) -> tuple[int, int]:
    status = os.fstat(number)
    return status.st_dev, status.st_ino
