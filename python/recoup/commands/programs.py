"""The programs of commands: checks that they exist, before PyTorch is loaded, and runs them."""

import io
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from recoup.commands.argument_types import similar_file
from recoup.commands.exit_codes import INTERRUPTED


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


def run_process(command: list[str], **settings: Any) -> int:
    """Runs the command and returns its exit code. Ctrl-C ends the command and this process."""
    sys.stdout.flush()
    with subprocess.Popen(command, **settings) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.wait()
            sys.exit(INTERRUPTED)


def shell_code(exit_code: int) -> int:
    """The exit code of a process as a shell shows it, where a negative one means a signal."""
    return exit_code if exit_code >= 0 else 128 - exit_code


def cannot_open(error: OSError) -> str:
    """The error of opening a program, in the words of Python."""
    return f"can't open file {error.filename!r}: [Errno {error.errno}] {error.strerror}"
