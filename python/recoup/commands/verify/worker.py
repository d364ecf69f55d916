"""Runs one of the programs of `recoup verify` in its own process.

Usage: python -m recoup.commands.verify.worker JOB, where JOB is a file with a pickled Job.
"""

import argparse
import contextlib
import dataclasses
import pickle
import sys
from pathlib import Path
from typing import Any, NoReturn, TextIO

import torch
from torch import Tensor
from torch.optim import Optimizer

from recoup._verify.bits import has_storage, pieces
from recoup._verify.compare import Difference, first_difference
from recoup._verify.op_log import OpLog
from recoup._verify.state import Watch
from recoup._verify.stream import Step, StreamReader, StreamWriter
from recoup.budgets import Budget
from recoup.commands.exit_codes import USAGE_ERROR
from recoup.commands.first_steps import FirstSteps, run_first_steps
from recoup.commands.run.settings import make_budget, why_not_entered
from recoup.commands.verify.arguments import Side
from recoup.run import Run


@dataclasses.dataclass
class Job:
    """What a process does. Files are None if they are not wanted."""

    side: Side
    status: Path
    """File for what happened."""
    most_steps: int | None = None
    """Number of steps after which the program ends."""
    stream: Path | None = None
    """File for the digests of all steps."""
    reference: Path | None = None
    """A file of digests to compare with. The first difference ends the program."""
    look: "Look | None" = None


@dataclasses.dataclass
class Look:
    """A closer look at one step, which ends the program."""

    step: int
    key: tuple[str, str, str]
    """The item whose elements are wanted."""
    log: Path | None
    """File for the ops of the step. To observe ops changes how compiled code runs."""
    elements: Path
    """File for the elements of the item."""


def main() -> int:
    """Runs the program. Its exceptions pass through, as in `recoup run`."""
    job: Job = pickle.loads(Path(sys.argv[1]).read_bytes())
    options = argparse.Namespace(
        script=job.side.script, args=job.side.args, is_module=job.side.is_module
    )
    return run_first_steps(options, lambda: _Verifying(job), "recoup verify")


class _Verifying(FirstSteps):
    """The scope around the program, its watch, and the status for the parent process."""

    def __init__(self, job: Job) -> None:
        super().__init__(0, job.status)
        self._job = job
        self._watch = Watch()
        self._files = contextlib.ExitStack()
        self._budget: Budget | None = None
        self._run: Run | None = None
        self._writer: StreamWriter | None = None
        self._reader: StreamReader | None = None
        self._log: OpLog | None = None
        self._difference: Difference | None = None
        self._looked_at: str | None = None
        self._ended_first = False

    def start(self) -> None:
        job = self._job
        if job.stream is not None:
            self._writer = StreamWriter(self._open(job.stream), job.side.words, torch.__version__)
        if job.reference is not None:
            self._reader = StreamReader(job.reference)
        if job.side.settings["budget"] is not None:
            self._enter(job.side.settings)
        self._watch.start()
        super().start()
        self._begin_log()

    def _enter(self, settings: dict[str, Any]) -> None:
        self._budget = _budget(settings)
        try:
            self._run = self._budget.__enter__()
        except (OSError, RuntimeError, ValueError) as error:
            _fail(why_not_entered(error, settings["spill"]))

    def _open(self, path: Path) -> TextIO:
        return self._files.enter_context(path.open("w", encoding="utf-8"))

    def on_step(self, optimizer: Optimizer) -> None:
        look = self._job.look
        if look is not None:
            if self.marks == look.step:
                self._look(optimizer, look)
                self.wanted = self.steps
            self._watch.skip_step()
            self._begin_log()
            return
        step = Step(self.marks, tuple(item for item, _ in self._watch.items(optimizer)))
        if self._writer is not None:
            self._writer.add(step)
        if self._reader is not None:
            expected = self._reader.next()
            self._ended_first = expected is None
            if expected is not None:
                self._difference = first_difference(expected, step)
        found = self._difference is not None or self._ended_first
        if found or self.marks == self._job.most_steps:
            self.wanted = self.steps

    def _begin_log(self) -> None:
        look = self._job.look
        if look is not None and look.log is not None and self.marks == look.step - 1:
            self._log = OpLog(self._open(look.log))
            self._log.__enter__()  # type: ignore[no-untyped-call]

    def _look(self, optimizer: Optimizer, look: Look) -> None:
        if self._log is not None:
            self._log.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        for item, tensor in self._watch.items(optimizer):
            if item.key == look.key:
                self._looked_at = item.digest
                if tensor is not None and has_storage(tensor):
                    _write_elements(tensor, look.elements)

    def on_end(self) -> dict[str, Any]:
        self._watch.stop()
        if self._writer is not None:
            self._writer.end(self.marks)
        self._files.close()
        replays = None
        if self._run is not None:
            replays = self._run.stats().replays
            with contextlib.suppress(OSError, RuntimeError):
                self._run._abandon()
        missing = 0
        if self._reader is not None and not self.is_over:
            while self._reader.next() is not None:
                missing += 1
        difference = self._difference
        return {
            "difference": None if difference is None else dataclasses.asdict(difference),
            "reference_ended_first": self._ended_first,
            "missing_steps": missing,
            "looked_at": self._looked_at,
            "replays": replays,
        }


def _budget(settings: dict[str, Any]) -> Budget:
    others = dict.fromkeys(("report", "lines", "timeline", "trace"))
    budget, _ = make_budget(argparse.Namespace(**settings, **others, fail=_fail))
    return budget


def _fail(message: str) -> NoReturn:
    print(f"recoup verify: error: {message}", file=sys.stderr)
    raise SystemExit(USAGE_ERROR)


def _write_elements(tensor: Tensor, path: Path) -> None:
    with torch.no_grad(), path.open("wb") as file:
        for piece in pieces(tensor.detach()):
            file.write(piece)


if __name__ == "__main__":
    sys.exit(main())
