"""Programs in processes of their own: their time limits, and how they ended."""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_OUTPUT_BYTES = 4000
"""Most bytes of a log that `supervise` returns."""
_LOOK_SECONDS = 0.2
_PR_SET_PDEATHSIG = 1  # of <linux/prctl.h>


@dataclass(frozen=True)
class Ended:
    """How a process ended."""

    status: int | None
    """Exit status, negative for a signal; None: it was killed at its time limit."""
    seconds: float
    output: str
    errors: str = ""
    """Standard error, if it is apart from the output."""

    @property
    def result_name(self) -> str:
        """ "ok", "failed" or "time limit"."""
        return {0: "ok", None: "time limit"}.get(self.status, "failed")

    @property
    def signal_name(self) -> str:
        """The signal that ended it, such as SIGSEGV; empty if none did."""
        return signal.Signals(-self.status).name if self.status and self.status < 0 else ""

    @property
    def last_line(self) -> str:
        """The last line of the errors, or of the output."""
        lines = (self.errors.strip() or self.output.strip()).splitlines()
        return lines[-1] if lines else "it printed nothing"

    @property
    def reason(self) -> str:
        """Why it failed, in one line; empty: it did not."""
        if self.status is None:
            return f"killed after {self.seconds:.0f} s"
        if self.status < 0:
            return f"ended by {self.signal_name}: {self.last_line}"
        return self.last_line if self.status > 0 else ""

    def result(self) -> dict[str, Any]:
        """The object in the last line of its output, which is JSON. Raises RuntimeError if it
        failed."""
        if self.status != 0:
            raise RuntimeError(self.reason)
        found: dict[str, Any] = json.loads(self.output.splitlines()[-1])
        return found


def call(
    command: Sequence[str | Path],
    seconds: float | None = None,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Ended:
    """Runs a command, and kills it after `seconds` seconds; None: there is no limit.

    environment: all of its variables; None: those of this process.
    folder: its working directory; None: that of this process.
    """
    start = time.monotonic()
    try:
        done = subprocess.run(
            list(map(str, command)),
            cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, errors="replace", timeout=seconds, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as late:
        return Ended(None, late.timeout, "")
    return Ended(done.returncode, time.monotonic() - start, done.stdout, done.stderr)


def supervise(
    command: Sequence[str | Path],
    seconds: float,
    environment: Mapping[str, str],
    log: Path,
    look: Callable[[], None] = lambda: None,
) -> Ended:
    """Runs a command with its output in a log, and returns the end of that.

    Kills the command and its children after `seconds` seconds, and if this call is interrupted.

    look: called repeatedly while it runs.
    """
    start = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            list(map(str, command)),
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
    took = seconds if status is None else time.monotonic() - start
    return Ended(status, took, _tail(log))


def _end_with_parent() -> None:
    """Runs in the new process: the kernel kills it if its parent dies and can no longer do so."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _wait(
    process: "subprocess.Popen[bytes]", deadline: float, look: Callable[[], None]
) -> int | None:
    while time.monotonic() < deadline:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(_LOOK_SECONDS)
        look()
    return None


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """Kills the whole process group, with the process's own children."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _tail(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _OUTPUT_BYTES))
        return file.read().decode("utf-8", errors="replace")
