"""Times the first steps of the program of `recoup suggest --time-plain`, without recoup.

Usage: python -m recoup.commands.suggest.time_steps STATUS STEPS [-m] SCRIPT [args ...]
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from torch.optim import Optimizer

from recoup.commands.first_steps import FirstSteps, add_program, run_first_steps


def main() -> int:
    """Runs the program. Its exceptions pass through, as in `recoup run`."""
    parser = argparse.ArgumentParser(prog="recoup suggest")
    add_program(parser)
    options = parser.parse_args()
    return run_first_steps(options, lambda: _Timing(options.steps, options.status), parser.prog)


class _Timing(FirstSteps):
    """The time of each step in ns, from the end of the previous step."""

    def __init__(self, wanted: int, status_file: Path) -> None:
        super().__init__(wanted, status_file)
        self._step_ns: list[int] = []
        self._begin_ns = 0

    def start(self) -> None:
        self._begin_ns = time.perf_counter_ns()
        super().start()

    def on_step(self, optimizer: Optimizer) -> None:
        now_ns = time.perf_counter_ns()
        self._step_ns.append(now_ns - self._begin_ns)
        self._begin_ns = now_ns

    def on_end(self) -> dict[str, Any]:
        return {"step_ns": self._step_ns}


if __name__ == "__main__":
    sys.exit(main())
