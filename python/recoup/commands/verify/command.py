"""`recoup verify`: runs both programs, and looks closer at the first difference."""

import argparse
import json
import os
import pickle
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from recoup._reporting.files import write_atomically
from recoup._verify.compare import Difference
from recoup._verify.follower import Look, Outcome, Task
from recoup._verify.investigation import explain, explain_digests
from recoup._verify.stream import Item, StreamReader
from recoup._verify.words import (
    difference_lines,
    ended_early_line,
    equal_line,
    steps_in_words,
)
from recoup.commands.exit_codes import DIFFERENT, NOT_WRITTEN
from recoup.commands.programs import ending_on_sigterm, run_process, shell_code
from recoup.commands.verify.arguments import Side
from recoup.commands.verify.worker import Job


def run(options: argparse.Namespace) -> int:
    """Prints the outcome. Returns 0 if the runs are equal, DIFFERENT if not."""
    with ending_on_sigterm(), tempfile.TemporaryDirectory(prefix="recoup-") as folder:
        return _Verification(options, Path(folder)).run()


class _Verification:
    """The runs of one command, and their files in a temporary folder."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self._options = options
        self._folder = folder
        self._reference: Side | None = options.sides[0]
        self._other: Side = options.sides[-1]
        self._jobs = 0

    def run(self) -> int:
        options = self._options
        if options.against is not None:
            self._reference, stream = None, Path(options.against)
            self._check_file(stream)
        else:
            stream = self._folder / "stream"
            steps = self._record(stream)
            if options.record is not None:
                return _keep(stream, options.record, steps)
        outcome, replays = self._run(self._job(self._other, Task(options.steps, reference=stream)))
        if outcome.difference is not None:
            self._print_difference(outcome.difference)
        elif outcome.reference_ended_first or outcome.missing_steps:
            print(ended_early_line(outcome.steps, outcome.missing_steps))
        else:
            print(equal_line(outcome.steps, replays))
            return 0
        return DIFFERENT

    def _print_difference(self, difference: Difference) -> None:
        known = explain_digests(difference)
        if self._reference is not None:
            repeats = (partial(self._repeat, side) for side in (self._reference, self._other))
            known = explain(difference, self._folder, *repeats)
        for line in difference_lines(difference, known):
            print(line)

    def _record(self, stream: Path) -> int:
        assert self._reference is not None
        outcome, _ = self._run(self._job(self._reference, Task(self._options.steps, stream)))
        if not outcome.steps:
            self._options.fail(
                "the program ended without a step of an optimizer of torch.optim, so there is "
                "nothing to compare"
            )
        return outcome.steps

    def _check_file(self, stream: Path) -> None:
        try:
            reader = StreamReader(stream)
            while reader.next() is not None:
                pass
        except (OSError, ValueError) as error:
            self._options.fail(f"--against: {error}")

    def _job(self, side: Side, task: Task) -> Job:
        self._jobs += 1
        return Job(side, self._folder / f"status-{self._jobs}", task)

    def _run(self, job: Job) -> tuple[Outcome, int | None]:
        """Runs the job. Returns its outcome, and its replays; None: it had no budget.

        Ends the process if the program failed.
        """
        exit_code = _start(job, quiet=False)
        status = _status(job)
        if status is None or (exit_code and not status["is_over"]):
            _refuse(self._options, job.side, exit_code)
        return _outcome(status), status["replays"]

    def _repeat(self, side: Side, look: Look) -> str | None:
        """Repeats the run for a closer look. Returns the digest of the item that it found."""
        job = self._job(side, Task(look=look))
        exit_code = _start(job, quiet=True)
        status = _status(job)
        if status is None or (exit_code and not status["is_over"]):
            return None
        return _outcome(status).looked_at


def _outcome(status: dict[str, Any]) -> Outcome:
    found: dict[str, Any] = status["outcome"]
    difference = found.pop("difference")
    return Outcome(**found, difference=_difference(difference) if difference else None)


def _difference(found: dict[str, Any]) -> Difference:
    other = found["other"]
    return Difference(
        found["step"],
        _item(found["item"]),
        None if other is None else _item(other),
        in_reference=found["in_reference"],
    )


def _item(found: dict[str, Any]) -> Item:
    return Item(**{**found, "shape": tuple(found["shape"])})


def _start(job: Job, *, quiet: bool) -> int:
    """Runs the job in a process of its own. What it prints appears on stderr, unless `quiet`."""
    file = job.status.with_suffix(".job")
    file.write_bytes(pickle.dumps(job))
    command = [sys.executable, "-m", "recoup.commands.verify.worker", str(file)]
    if not quiet:
        print(f"recoup verify: runs {' '.join(job.side.words)}", file=sys.stderr, flush=True)
    out: Any = subprocess.DEVNULL if quiet else sys.stderr
    environment = {**os.environ, **job.side.environment}
    errors = subprocess.DEVNULL if quiet else None
    return run_process(command, stdout=out, stderr=errors, env=environment)


def _status(job: Job) -> dict[str, Any] | None:
    if not job.status.exists():
        return None
    status: dict[str, Any] = json.loads(job.status.read_bytes())
    return status


def _refuse(options: argparse.Namespace, side: Side, exit_code: int) -> NoReturn:
    """Ends the process with the exit code of the program; a signal as in a shell."""
    how = f"by signal {-exit_code}" if exit_code < 0 else f"with exit code {exit_code}"
    what = f"{side.script} ended {how}, so nothing was compared"
    if exit_code == 0:
        options.fail(what)
    print(f"recoup verify: error: {what}", file=sys.stderr)
    sys.exit(shell_code(exit_code))


def _keep(stream: Path, file: Path, steps: int) -> int:
    try:
        write_atomically(file, stream.read_text(encoding="utf-8"))
    except OSError as error:
        print(f"recoup verify: cannot write {file}: {error}", file=sys.stderr)
        return NOT_WRITTEN
    print(f"the digests of {steps_in_words(steps)} are in {file}")
    return 0
