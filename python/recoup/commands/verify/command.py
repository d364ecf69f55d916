"""`recoup verify`: runs both programs, and looks closer at the first difference."""

import argparse
import json
import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NoReturn

from recoup._reporting.files import write_atomically
from recoup._verify.compare import (
    Difference,
    Elements,
    compare_elements,
    number_of,
    read_elements,
)
from recoup._verify.explain import origin_of
from recoup._verify.op_log import read_log
from recoup._verify.stream import Item, StreamReader
from recoup.commands.exit_codes import DIFFERENT, NOT_WRITTEN
from recoup.commands.programs import run_process, shell_code
from recoup.commands.verify.arguments import Side
from recoup.commands.verify.output import (
    NO_OP,
    NOT_REPEATED,
    OBSERVED,
    Explanation,
    difference_lines,
    ended_early_line,
    equal_line,
    steps_in_words,
)
from recoup.commands.verify.worker import Job, Look


def run(options: argparse.Namespace) -> int:
    """Prints the outcome. Returns 0 if the runs are equal, DIFFERENT if not."""
    with tempfile.TemporaryDirectory(prefix="recoup-") as folder:
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
        status = self._run(self._job(self._other, reference=stream))
        if status["reference_ended_first"] or status["missing_steps"]:
            print(ended_early_line(status["marks"], status["missing_steps"]))
            return DIFFERENT
        if status["difference"] is None:
            print(equal_line(status["marks"], status["replays"]))
            return 0
        difference = _difference(status["difference"])
        for line in difference_lines(difference, self._explain(difference)):
            print(line)
        return DIFFERENT

    def _record(self, stream: Path) -> int:
        assert self._reference is not None
        status = self._run(self._job(self._reference, stream=stream))
        if not status["marks"]:
            self._options.fail(
                "the program ended without a step of an optimizer of torch.optim, so there is "
                "nothing to compare"
            )
        return int(status["marks"])

    def _check_file(self, stream: Path) -> None:
        try:
            reader = StreamReader(stream)
            while reader.next() is not None:
                pass
        except (OSError, ValueError) as error:
            self._options.fail(f"--against: {error}")

    def _job(self, side: Side, **wanted: Any) -> Job:
        self._jobs += 1
        status = self._folder / f"status-{self._jobs}"
        return Job(side, status, most_steps=self._options.steps, **wanted)

    def _run(self, job: Job) -> dict[str, Any]:
        """The status of a run. Ends the process if the program failed."""
        exit_code = _start(job, quiet=False)
        status = _status(job)
        if status is None or (exit_code and not status["is_over"]):
            _refuse(self._options, job.side, exit_code)
        return status

    def _explain(self, difference: Difference) -> Explanation:
        """Repeats both runs up to the step that differs."""
        item, other = difference.item, difference.other
        if self._reference is None or other is None:
            return Explanation()
        for is_observed in (True, False):
            mine = self._look(self._reference, difference.step, item, is_observed)
            others = self._look(self._other, difference.step, other, is_observed)
            if mine is None or others is None:
                continue
            elements = _elements(item, other, mine.elements, others.elements)
            if mine.log is None or others.log is None:
                return Explanation(elements, note=OBSERVED)
            origin = origin_of([other.digest], [*read_log(mine.log)], [*read_log(others.log)])
            return Explanation(elements, origin, "" if origin is not None else NO_OP)
        return Explanation(note=NOT_REPEATED)

    def _look(self, side: Side, step: int, item: Item, is_observed: bool) -> Look | None:
        """Runs the side up to the step. None: it does not get the same item again."""
        job = self._job(side)
        files = [job.status.with_suffix(suffix) for suffix in (".log", ".elements")]
        log = files[0] if is_observed else None
        job.look = Look(step, item.key, log, files[1])
        exit_code = _start(job, quiet=True)
        status = _status(job)
        if status is None or (exit_code and not status["is_over"]):
            return None
        return job.look if status["looked_at"] == item.digest else None


def _elements(item: Item, other: Item, mine: Path, others: Path) -> Elements | None:
    if (item.dtype, item.shape) != (other.dtype, other.shape):
        return None
    if item.value:
        return compare_elements(number_of(item), number_of(other))
    if not mine.exists() or not others.exists():
        return None
    return compare_elements(read_elements(mine, item), read_elements(others, other))


def _difference(found: dict[str, Any]) -> Difference:
    other = found["other"]
    return Difference(found["step"], _item(found["item"]), None if other is None else _item(other))


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
