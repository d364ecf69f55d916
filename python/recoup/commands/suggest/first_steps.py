"""Runs a program until some steps of its optimizer have ended: for recordings and for timings."""

import argparse
import atexit
import functools
import json
import os
import sys
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch.optim import Optimizer

from recoup._patching import step_marks
from recoup._reporting.files import write_atomically
from recoup.commands.misplaced import options_in, refused_option
from recoup.commands.run.program import cannot_open, find_program, run_as_python

# A program that catches what ends it comes to the end of its next step, and is told again. One
# that does so in a loop without an end is ended.
_MOST_CATCHES = 100
_USAGE_ERROR = 2


class StepsHaveEnded(BaseException):
    """Ends the program. It is no Exception, because programs catch exceptions and go on."""


class FirstSteps(ABC):
    """Counts the steps of a program, ends it, and writes a status file for another process."""

    def __init__(self, wanted: int, status_file: Path) -> None:
        self.wanted = wanted
        """The number of steps after which the program ends; 0: it ends by itself."""
        self._status_file = status_file
        self._process = os.getpid()
        self._is_running = False
        self._optimizer: weakref.ref[Optimizer] | None = None
        self.steps = 0
        """The steps of the optimizer that stepped first."""
        self.marks = 0
        """The steps of all optimizers."""
        self._catches = 0
        self.is_over = False
        self._unknown_option: str | None = None

    @abstractmethod
    def on_step(self) -> None:
        """A step has ended, and is counted."""

    @abstractmethod
    def on_end(self) -> dict[str, Any]:
        """The program is over. Returns what the status file is to have besides the counts."""

    def start(self) -> None:
        """Begins to count."""
        self._is_running = True
        step_marks.add(self, self._end_step)
        threading.excepthook = functools.partial(_call_thread_hook, threading.excepthook)

    def _end_step(self, optimizer: Optimizer, *_: object) -> None:
        if not self._is_running or os.getpid() != self._process:
            return
        if self.is_over:
            self._catches += 1
            if self._catches > _MOST_CATCHES:
                self._end_at_once()
            raise StepsHaveEnded
        self.marks += 1
        if self._optimizer is None or self._optimizer() is None:
            self._optimizer = weakref.ref(optimizer)
        # Of several optimizers that take turns, the rounds are counted.
        if optimizer is self._optimizer():
            self.steps += 1
        self.on_step()
        if self.steps == self.wanted:
            self.is_over = True
            raise StepsHaveEnded

    def failed(self, error: BaseException, arguments: Sequence[str]) -> None:
        """The program ended with an error; `arguments` are those that it got."""
        self._unknown_option = refused_option(error, options_in(arguments))

    def end(self) -> None:
        """Writes the status file."""
        # A child that was forked has copies of our exit handlers.
        if not self._is_running or os.getpid() != self._process:
            return
        step_marks.remove(self)
        status = {
            "steps": self.steps,
            "marks": self.marks,
            "is_over": self.is_over,
            "was_killed": self._catches > _MOST_CATCHES,
            "unknown_option": self._unknown_option,
            **self.on_end(),
        }
        write_atomically(self._status_file, json.dumps(status))

    def _end_at_once(self) -> None:
        self.end()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(0)


def add_program(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that every mode has."""
    parser.add_argument("status", type=Path)
    parser.add_argument("steps", type=int)
    parser.add_argument("-m", dest="is_module", action="store_true")
    parser.add_argument("script")
    parser.add_argument("args", nargs=argparse.REMAINDER)


def run_first_steps(options: argparse.Namespace, make: Callable[[], FirstSteps]) -> int:
    """Runs the program. What it raises passes through, as with `recoup run`."""
    try:
        program = find_program(options)
    except OSError as error:
        print(f"recoup suggest: {cannot_open(error)}", file=sys.stderr)
        return _USAGE_ERROR
    steps = make()
    # First, so that it comes last: the program's own exit handlers still run before it.
    atexit.register(steps.end)
    steps.start()
    try:
        run_as_python(program)
    except BaseException as error:
        if steps.is_over and _comes_of_the_end(error):
            return 0
        steps.failed(error, options.args)
        raise
    return 0


def _comes_of_the_end(error: BaseException) -> bool:
    """Whether it was raised for, or while handling, what ends the program."""
    seen: set[int] = set()
    left = [error]
    while left:
        one = left.pop()
        if isinstance(one, StepsHaveEnded):
            return True
        if id(one) not in seen:
            seen.add(id(one))
            left += [each for each in (one.__cause__, one.__context__) if each is not None]
            left += getattr(one, "exceptions", ())  # of a group
    return False


def _call_thread_hook(hook: Any, arguments: Any) -> None:
    if arguments.exc_value is None or not _comes_of_the_end(arguments.exc_value):
        hook(arguments)
