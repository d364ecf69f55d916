"""The programs of commands: checks that they exist, before PyTorch is loaded, and runs them."""

import contextlib
import ctypes
import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
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


_OWN_END_S = 1
"""Seconds in which a process ends by itself after Ctrl-C, which a terminal sends to it, too."""


class Terminated(SystemExit):
    """SIGTERM has arrived in `ending_on_sigterm`."""


@contextlib.contextmanager
def ending_on_sigterm() -> Iterator[None]:
    """Within it SIGTERM raises Terminated, so that temporary folders are removed.

    To be called on the main thread. A SIGTERM that is ignored stays ignored.
    """

    def end(number: int, _: object) -> NoReturn:
        raise Terminated(shell_code(-number))

    before = signal.getsignal(signal.SIGTERM)
    if before is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def run_process(command: list[str], **settings: Any) -> int:
    """Runs the command and returns its exit code.

    A signal that ends this process (Ctrl-C, SIGTERM in `ending_on_sigterm`) ends the command first;
    a second one kills it.
    """
    sys.stdout.flush()
    with subprocess.Popen(command, **settings) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            _end(process, signal.SIGINT, wait_s=_OWN_END_S)
            sys.exit(INTERRUPTED)
        except Terminated:
            _end(process, signal.SIGTERM)
            raise


def _end(process: "subprocess.Popen[Any]", number: signal.Signals, wait_s: float = 0) -> None:
    """Sends the signal unless the process ends within `wait_s`, and waits for its end."""
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(wait_s)
            return
        process.send_signal(number)
        process.wait()
    except BaseException:
        process.kill()
        raise


def end_with_parent() -> None:
    """From now on the kernel kills this process when the process that started it ends."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended just before
        os.kill(os.getpid(), signal.SIGKILL)


_PR_SET_PDEATHSIG = 1


def shell_code(exit_code: int) -> int:
    """The exit code of a process as a shell shows it, where a negative one means a signal."""
    return exit_code if exit_code >= 0 else 128 - exit_code


def cannot_open(error: OSError) -> str:
    """The error of opening a program, in the words of Python."""
    return f"can't open file {error.filename!r}: [Errno {error.errno}] {error.strerror}"
