"""Times the first steps of the program of `recoup suggest --time-plain`, without recoup.

Usage: python -m recoup.commands.suggest.time_steps STATUS STEPS [-m] SCRIPT [args ...]
"""

import argparse
import sys
from typing import Any

from torch.optim import Optimizer

from recoup._reporting.step_times import StepTimes
from recoup.commands.first_steps import FirstSteps, add_program, run_first_steps


def main() -> int:
    """Runs the program. Its exceptions pass through, as in `recoup run`."""
    parser = argparse.ArgumentParser(prog="recoup suggest")
    add_program(parser)
    options = parser.parse_args()
    return run_first_steps(options, lambda: _Timing(options.steps, options.status), parser.prog)


class _Timing(FirstSteps):
    def start(self) -> None:
        self._times = StepTimes()
        super().start()

    def on_step(self, optimizer: Optimizer) -> None:
        self._times.end_step()

    def on_end(self) -> dict[str, Any]:
        return {"step_ns": self._times.steps_ns}


if __name__ == "__main__":
    sys.exit(main())
