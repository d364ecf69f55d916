"""Open files that a program, which knows nothing of them, may close and number anew."""

import contextlib
import os


class Descriptor:
    """The file that is open under a number now, and no other that comes to have the number."""

    def __init__(self, number: int) -> None:
        """Raises OSError when nothing is open there."""
        self.number = number
        self._file = _file_of(number)

    def is_there(self) -> bool:
        """Whether the number still is that of the file."""
        with contextlib.suppress(OSError):
            return _file_of(self.number) == self._file
        return False

    def write(self, content: bytes) -> None:
        """Writes all of it, if the file is still there. Raises OSError when it takes no more."""
        while content and self.is_there():
            content = content[os.write(self.number, content) :]

    def close(self) -> None:
        """Closes the file, if it is still there."""
        if self.is_there():
            os.close(self.number)


def _file_of(number: int) -> tuple[int, int]:
    status = os.fstat(number)
    return status.st_dev, status.st_ino
