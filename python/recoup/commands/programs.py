"""Checks that the program of a command exists, before PyTorch is loaded."""

import io
import os
from collections.abc import Callable
from typing import NoReturn

from recoup.commands.argument_types import similar_file


def check_program(script: str, fail: Callable[[str], NoReturn]) -> None:
    """Ends the process with one line on stderr if `script` cannot be opened."""
    path = os.path.abspath(script)
    if os.path.isdir(path):  # Python runs its __main__.py
        return
    try:
        io.open_code(path).close()
    except OSError as error:
        fail(f"{cannot_open(error)}{similar_file(error)}")
    except ValueError as error:
        fail(f"can't open file {path!r}: {error}")


def cannot_open(error: OSError) -> str:
    """The error of opening a program, in the words of Python."""
    return f"can't open file {error.filename!r}: [Errno {error.errno}] {error.strerror}"
