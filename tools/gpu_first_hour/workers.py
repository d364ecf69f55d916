"""Programs that a check runs, each in its own process; several can run at a time."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from recoup.bench.harness.processes import Ended, call


def run(
    name: str,
    command: Sequence[str | Path],
    seconds: float,
    environment: Mapping[str, str],
    folder: Path | None = None,
) -> Ended:
    """Runs the command for at most `seconds` seconds, and prints its output if it fails.

    environment: variables in addition to those of this process. Kernels on the host get one thread.
    """
    ended = call(command, seconds, os.environ | {"OMP_NUM_THREADS": "1"} | environment, folder)
    if ended.result_name == "failed":
        print(f"---- {name}\n{ended.output[-500:]}{ended.errors[-3000:]}", flush=True)
    return ended
