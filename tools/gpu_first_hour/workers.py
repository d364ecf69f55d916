"""Programs that a check runs, each in its own process; several can run at a time."""

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Worked:
    """How a program ended."""

    result: str
    """"ok", "failed" or "time limit"."""
    reason: str
    """Why it is not "ok"; else empty."""
    seconds: float
    output: str
    """Standard output; empty at a time limit."""


def run(
    name: str,
    command: Sequence[str | Path],
    seconds: float,
    environment: Mapping[str, str],
    folder: Path | None = None,
) -> Worked:
    """Runs the command for at most `seconds` seconds, and prints its output if it fails.

    environment: variables in addition to those of this process. Kernels on the host get one thread.
    """
    start = time.monotonic()
    try:
        done = subprocess.run(
            list(map(str, command)),
            cwd=folder, env=os.environ | {"OMP_NUM_THREADS": "1"} | dict(environment),
            capture_output=True, text=True, errors="replace", timeout=seconds, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Worked("time limit", f"killed after {seconds:.0f} s", seconds, "")
    took = time.monotonic() - start
    if done.returncode == 0:
        return Worked("ok", "", took, done.stdout)
    print(f"---- {name}\n{done.stdout[-500:]}{done.stderr[-3000:]}", flush=True)
    last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    return Worked("failed", last[:300], took, done.stdout)
