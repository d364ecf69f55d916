"""Runs one of the programs of `recoup verify` in its own process.

Usage: python -m recoup.commands.verify.worker JOB, where JOB is a file with a pickled Job.
"""

import argparse
import contextlib
import dataclasses
import pickle
import sys
from pathlib import Path
from typing import Any, NoReturn

from torch.optim import Optimizer

from recoup._verify.follower import Follower, Task
from recoup._verify.memory import filled
from recoup.budgets import Budget
from recoup.commands.exit_codes import USAGE_ERROR
from recoup.commands.first_steps import FirstSteps, run_first_steps
from recoup.commands.run.settings import make_budget, why_not_entered
from recoup.commands.verify.arguments import Side
from recoup.run import Run


@dataclasses.dataclass
class Job:
    """What a process does."""

    side: Side
    status: Path
    """File for what happened."""
    task: Task


def main() -> int:
    """Runs the program. Its exceptions pass through, as in `recoup run`."""
    job: Job = pickle.loads(Path(sys.argv[1]).read_bytes())
    options = argparse.Namespace(
        script=job.side.script, args=job.side.args, is_module=job.side.is_module
    )
    with filled(job.task.fill):
        return run_first_steps(options, lambda: _Verifying(job), "recoup verify")


class _Verifying(FirstSteps):
    """The scope around the program, its follower, and the status for the parent process."""

    def __init__(self, job: Job) -> None:
        super().__init__(0, job.status)
        self._settings = job.side.settings
        self._follower = Follower(job.task, job.side.words)
        self._budget: Budget | None = None
        self._run: Run | None = None

    def start(self) -> None:
        if self._settings["budget"] is not None:
            self._enter(self._settings)
        self._follower.start()
        super().start()

    def _enter(self, settings: dict[str, Any]) -> None:
        self._budget = _budget(settings)
        try:
            self._run = self._budget.__enter__()
        except (OSError, RuntimeError, ValueError) as error:
            _fail(why_not_entered(error, settings["spill"]))

    def on_step(self, optimizer: Optimizer) -> None:
        if self._follower.on_step(optimizer):
            self.wanted = self.steps

    def on_end(self) -> dict[str, Any]:
        outcome = self._follower.end()
        replays = None
        if self._run is not None:
            replays = self._run.stats().replays
            with contextlib.suppress(OSError, RuntimeError):
                self._run._abandon()
        return {"outcome": dataclasses.asdict(outcome), "replays": replays}


def _budget(settings: dict[str, Any]) -> Budget:
    others = dict.fromkeys(("report", "lines", "timeline", "trace"))
    budget, _ = make_budget(argparse.Namespace(**settings, **others, fail=_fail))
    return budget


def _fail(message: str) -> NoReturn:
    print(f"recoup verify: error: {message}", file=sys.stderr)
    raise SystemExit(USAGE_ERROR)


if __name__ == "__main__":
    sys.exit(main())
