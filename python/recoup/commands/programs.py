"""The program that a command is to run, before anything is loaded: whether it is there."""

import io
import os
from collections.abc import Callable
from typing import NoReturn

from recoup.commands.argument_types import similar_file


def check_program(script: str, fail: Callable[[str], NoReturn]) -> None:
    """Ends the process with one line when `script` cannot be opened."""
    path = os.path.abspath(script)
    if os.path.isdir(path):  # with a __main__.py, as Python has it
        return
    try:
        io.open_code(path).close()
    except OSError as error:
        fail(f"{cannot_open(error)}{similar_file(error)}")
    except ValueError as error:
        fail(f"can't open file {path!r}: {error}")


def cannot_open(error: OSError) -> str:
    """What opening a program raised, as Python says it."""
    return f"can't open file {error.filename!r}: [Errno {error.errno}] {error.strerror}"
