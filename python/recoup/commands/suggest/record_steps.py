"""The program of `recoup suggest`, in a process of its own: it ends after some steps.

Usage: python -m recoup.commands.suggest.record_steps TRACE STATUS STEPS [-m] SCRIPT [args ...]
STEPS is 0 where the program is to end by itself.
"""

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import Any

from recoup.commands.suggest.first_steps import FirstSteps, add_program, run_first_steps
from recoup.offline.overheads import Overheads, measure_overheads
from recoup.run import Run
from recoup.scope import trace


def main() -> int:
    """Runs the program. What it raises passes through, as with `recoup run`."""
    parser = argparse.ArgumentParser(prog="recoup suggest")
    parser.add_argument("trace", type=Path)
    add_program(parser)
    options = parser.parse_args()
    return run_first_steps(options, lambda: _Recording(options, measure_overheads(options.trace)))


class _Recording(FirstSteps):
    """The scope around the program, and what the other process wants to know."""

    def __init__(self, options: argparse.Namespace, overheads: Overheads) -> None:
        super().__init__(options.steps, options.status)
        self._overheads = overheads
        self._scope = trace(options.trace, device="cpu")
        self._run: Run | None = None
        self._beside_bytes: int | None = None

    def start(self) -> None:
        self._run = self._scope.__enter__()
        super().start()  # after the scope's own hook, which marks the step in the trace

    def on_step(self) -> None:
        # It takes some 20 ms, by which the next step is longer: not after each step, so that a
        # later repetition of a step has its true time.
        is_power_of_2 = self.marks & (self.marks - 1) == 0
        if self._run is not None and (is_power_of_2 or self.steps == self.wanted):
            beside = beside_tensors_bytes(self._run)
            if beside is not None:
                self._beside_bytes = max(beside, self._beside_bytes or 0)

    def on_end(self) -> dict[str, Any]:
        error = None
        try:
            if self._run is not None:
                self._run._abandon()  # no code looks at its tensors any more
        except (OSError, RuntimeError) as failed:
            error = str(failed)
        return {
            "beside_bytes": self._beside_bytes,
            "overheads": dataclasses.asdict(self._overheads),
            "error": error,
        }


def beside_tensors_bytes(run: Run) -> int | None:
    """What the process has resident and the budget is not charged for; None if it is not known.

    The pool is the one mapping as large as the budget of a recording: all of the memory.
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
