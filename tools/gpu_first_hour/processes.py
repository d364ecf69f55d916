"""A check's process: its time limit, and what it has said when it has ended."""

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

OUTPUT_BYTES = 4000
LOOK_SECONDS = 0.2
PR_SET_PDEATHSIG = 1  # of <linux/prctl.h>


@dataclass(frozen=True)
class Ending:
    """How a process ended."""

    status: int | None
    """None: it was killed at its time limit."""
    seconds: float
    output: str
    """The end of it."""


def run(
    command: list[str],
    environment: dict[str, str],
    log: Path,
    seconds: float,
    look: Callable[[], None] = lambda: None,
) -> Ending:
    """Runs the command with its own children, and kills them all at the limit or when this is left.

    look: called again and again while it runs.
    """
    start = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_end_with_parent,
        )
        try:
            status = _wait(process, start + seconds, look)
        finally:
            _kill(process)
    return Ending(status, time.monotonic() - start, tail(log))


def _end_with_parent() -> None:
    """Called in the new process: it is killed when this one is, which then can kill nothing."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _wait(
    process: "subprocess.Popen[bytes]", deadline: float, look: Callable[[], None]
) -> int | None:
    while time.monotonic() < deadline:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(LOOK_SECONDS)
        look()
    return None


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """The whole group: what the check itself has started too."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def tail(log: Path) -> str:
    """The end of what was printed."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - OUTPUT_BYTES))
        return file.read().decode("utf-8", errors="replace")
