"""The times of a program's first steps without recoup, in another process."""

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from recoup.commands.programs import run_process


def time_plain_steps(
    program: Sequence[str], steps: int, *, is_module: bool, stdout: IO[str] | int | None = None
) -> tuple[list[int] | None, int]:
    """Runs the program for `steps` steps of an optimizer, or to its end.

    program: the script or the name of a module, and its arguments.
    stdout: the standard output of the program; None: that of this process.

    Returns the time of each step in nanoseconds, and the exit code of the program. None instead of
    times: the program ended without its exit handlers.
    """
    with tempfile.TemporaryDirectory(prefix="recoup-") as folder:
        status_file = Path(folder) / "status.json"
        command = [sys.executable, "-m", "recoup.commands.suggest.time_steps", str(status_file)]
        command += [str(steps), *(["-m"] if is_module else []), *program]
        exit_code = run_process(command, stdout=stdout)
        if not status_file.exists():
            return None, exit_code
        return json.loads(status_file.read_bytes())["step_ns"], exit_code
