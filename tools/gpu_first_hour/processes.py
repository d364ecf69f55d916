"""A check's process, with its time limit and its output."""

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
    """Exit status; None: it was killed at its time limit."""
    seconds: float
    output: str
    """End of the output."""


def run(
    command: list[str],
    environment: dict[str, str],
    log: Path,
    seconds: float,
    look: Callable[[], None] = lambda: None,
) -> Ending:
    """Runs the command; kills it and its children at the time limit or if this call is interrupted.

    look: called repeatedly while it runs.
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
    """Runs in the new process: the kernel kills it if its parent dies and can no longer do so."""
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
    """Kills the whole process group, with the check's own children."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def tail(log: Path) -> str:
    """End of the output in the log."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - OUTPUT_BYTES))
        return file.read().decode("utf-8", errors="replace")
