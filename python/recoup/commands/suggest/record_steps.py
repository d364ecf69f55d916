"""Runs and records the first steps of the program of `recoup suggest`, in its own process.

Usage: python -m recoup.commands.suggest.record_steps TRACE STATUS STEPS [-m] SCRIPT [args ...]
STEPS is 0 to record the program to its end.
"""

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import Any

from torch.optim import Optimizer

from recoup.budgets import Budget
from recoup.commands.budget_arguments import add_rules
from recoup.commands.first_steps import FirstSteps, add_program, run_first_steps
from recoup.commands.run.settings import rules_of
from recoup.offline.overheads import Overheads, measure_overheads
from recoup.run import Run
from recoup.scope import trace


def main() -> int:
    """Runs the program. Its exceptions pass through, as in `recoup run`."""
    parser = argparse.ArgumentParser(prog="recoup suggest")
    parser.add_argument("trace", type=Path)
    add_program(parser)
    add_rules(parser)
    options = parser.parse_args()
    return run_first_steps(
        options, lambda: _Recording(options, measure_overheads(options.trace)), parser.prog
    )


class _Recording(FirstSteps):
    """The scope around the program, and the status fields for the parent process."""

    def __init__(self, options: argparse.Namespace, overheads: Overheads) -> None:
        super().__init__(options.steps, options.status)
        self._overheads = overheads
        self._scope = trace(options.trace, device="cpu")
        # A recording spills nothing; the rules are for its simulations.
        if (rules := rules_of(options)) is not None:
            self._scope = Budget(dataclasses.replace(self._scope.setup, modules=True, rules=rules))
        self._run: Run | None = None
        self._other_bytes: int | None = None

    def start(self) -> None:
        self._run = self._scope.__enter__()
        super().start()  # after the scope's own hook, which marks the step in the trace

    def on_step(self, optimizer: Optimizer) -> None:
        # The measurement takes about 20 ms and lengthens the next step. So it is not made after
        # each step, and later steps keep their true time.
        is_power_of_2 = self.marks & (self.marks - 1) == 0
        if self._run is not None and (is_power_of_2 or self.steps == self.wanted):
            other = other_resident_bytes(self._run)
            if other is not None:
                self._other_bytes = max(other, self._other_bytes or 0)

    def on_end(self) -> dict[str, Any]:
        error = None
        try:
            if self._run is not None:
                self._run._abandon()  # no code uses its tensors any more
        except (OSError, RuntimeError) as failed:
            error = str(failed)
        return {
            "other_bytes": self._other_bytes,
            "overheads": dataclasses.asdict(self._overheads),
            "error": error,
        }


def other_resident_bytes(run: Run) -> int | None:
    """Resident bytes of the process that the budget is not charged for; None if unknown.

    The pool is the only mapping at least as large as the budget, which in a recording is all
    physical memory.
    """
    stats = run.stats()
    resident = pool = 0
    size = 0
    try:
        with open("/proc/self/smaps", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.startswith("Size:"):
                    size = int(line.split()[1]) << 10
                elif line.startswith("Rss:"):
                    rss = int(line.split()[1]) << 10
                    resident += rss
                    pool += rss if size >= stats.budget_bytes else 0
    except OSError:
        return None
    return max(0, resident - pool - stats.external_bytes)


if __name__ == "__main__":
    sys.exit(main())
