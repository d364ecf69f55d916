"""The program of `recoup suggest`, in a process of its own: it ends after some steps.

Usage: python -m recoup.commands.record_steps TRACE STATUS STEPS [-m] SCRIPT [args ...]
STEPS is 0 where the program is to end by itself.
"""

import argparse
import atexit
import dataclasses
import functools
import json
import os
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

from torch.optim import Optimizer

from recoup import step_marks
from recoup.commands.run_program import cannot_open, find_program, run_as_python
from recoup.files import write_atomically
from recoup.offline.overheads import Overheads, measure_overheads
from recoup.run import Run
from recoup.scope import trace

# A program that catches what ends it comes to the end of its next step, and is told again. One
# that does so in a loop without an end is ended.
_MOST_CATCHES = 100
_USAGE_ERROR = 2


class StepsAreRecorded(BaseException):
    """Ends the program. No Exception: programs catch these and go on."""


def main() -> int:
    """Runs the program. What it raises passes through, as with `recoup run`."""
    parser = argparse.ArgumentParser(prog="recoup suggest")
    parser.add_argument("trace", type=Path)
    parser.add_argument("status", type=Path)
    parser.add_argument("steps", type=int)
    parser.add_argument("-m", dest="is_module", action="store_true")
    parser.add_argument("script")
    parser.add_argument("args", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    try:
        program = find_program(options)
    except OSError as error:
        print(f"recoup suggest: {cannot_open(error)}", file=sys.stderr)
        return _USAGE_ERROR
    recording = _Recording(options, measure_overheads(options.trace))
    # First, so that it comes last: the program's own exit handlers still run inside the scope.
    atexit.register(recording.end)
    recording.start()
    try:
        run_as_python(program)
    except BaseException as error:
        if recording.is_over and _comes_of_the_end(error):
            return 0
        raise
    return 0


class _Recording:
    """The scope around the program, and what the other process wants to know."""

    def __init__(self, options: argparse.Namespace, overheads: Overheads) -> None:
        self._overheads = overheads
        self._wanted = options.steps
        self._status_file: Path = options.status
        self._scope = trace(options.trace, device="cpu")
        self._process = os.getpid()
        self._run: Run | None = None
        self._optimizer: weakref.ref[Optimizer] | None = None
        self._steps = 0  # of that optimizer
        self._marks = 0  # steps of all
        self._catches = 0
        self._beside_bytes: int | None = None
        self.is_over = False

    def start(self) -> None:
        self._run = self._scope.__enter__()
        # Behind the scope's own hook, which marks the step in the trace.
        step_marks.add(self, self._end_step)
        threading.excepthook = functools.partial(_call_thread_hook, threading.excepthook)

    def _end_step(self, optimizer: Optimizer, *_: object) -> None:
        if self._run is None or os.getpid() != self._process:
            return
        if self.is_over:
            self._catches += 1
            if self._catches > _MOST_CATCHES:
                self._end_at_once()
            raise StepsAreRecorded
        self._marks += 1
        if self._optimizer is None or self._optimizer() is None:
            self._optimizer = weakref.ref(optimizer)
        # Of several that take turns, the rounds are counted.
        if optimizer is self._optimizer():
            self._steps += 1
        beside = beside_tensors_bytes(self._run)
        if beside is not None:
            self._beside_bytes = max(beside, self._beside_bytes or 0)
        if self._steps == self._wanted:
            self.is_over = True
            raise StepsAreRecorded

    def end(self) -> None:
        # A child that was forked has copies of our exit handlers.
        if self._run is None or os.getpid() != self._process:
            return
        status: dict[str, Any] = {
            "steps": self._steps,
            "marks": self._marks,
            "is_over": self.is_over,
            "was_killed": self._catches > _MOST_CATCHES,
            "beside_bytes": self._beside_bytes,
            "overheads": dataclasses.asdict(self._overheads),
            "error": None,
        }
        step_marks.remove(self)
        try:
            self._run._abandon()  # nobody looks at its tensors any more
        except (OSError, RuntimeError) as error:
            status["error"] = str(error)
        write_atomically(self._status_file, json.dumps(status))

    def _end_at_once(self) -> None:
        self.end()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(0)


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


def _comes_of_the_end(error: BaseException) -> bool:
    """Whether it was raised for, or while handling, what ends the program."""
    seen: set[int] = set()
    left = [error]
    while left:
        one = left.pop()
        if isinstance(one, StepsAreRecorded):
            return True
        if id(one) not in seen:
            seen.add(id(one))
            left += [each for each in (one.__cause__, one.__context__) if each is not None]
            left += getattr(one, "exceptions", ())  # of a group
    return False


def _call_thread_hook(hook: Any, arguments: Any) -> None:
    if arguments.exc_value is None or not _comes_of_the_end(arguments.exc_value):
        hook(arguments)


if __name__ == "__main__":
    sys.exit(main())
