"""Runs a program for a number of optimizer steps, to record, to time or to compare them."""

import argparse
import atexit
import json
import os
import sys
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch.optim import Optimizer

from recoup._patching import step_marks
from recoup._patching.step_marks import StepsHaveEnded, is_due_to_the_end, silence_threads
from recoup._reporting.files import write_atomically
from recoup.commands.exit_codes import USAGE_ERROR
from recoup.commands.misplaced import options_in, refused_option
from recoup.commands.programs import end_with_parent
from recoup.commands.run.program import cannot_open, find_program, run_as_python

# A program that catches StepsHaveEnded gets it again at the end of each later step. After this
# number of catches the process ends.
_MOST_CATCHES = 100


class FirstSteps(ABC):
    """Counts the steps of a program, ends it, and writes a status file for the parent process."""

    def __init__(self, wanted: int, status_file: Path) -> None:
        self.wanted = wanted
        """The number of steps after which the program ends; 0: it ends by itself."""
        self._status_file = status_file
        self._process = os.getpid()
        self._is_running = False
        self._optimizer: weakref.ref[Optimizer] | None = None
        self.steps = 0
        """Number of steps of the optimizer that stepped first."""
        self.marks = 0
        """Number of steps of all optimizers."""
        self._catches = 0
        self.is_over = False
        self._unknown_option: str | None = None

    @abstractmethod
    def on_step(self, optimizer: Optimizer) -> None:
        """Called after a step of the optimizer has ended and was counted."""

    @abstractmethod
    def on_end(self) -> dict[str, Any]:
        """Called after the program ended. Returns the fields to add to the status file."""

    def start(self) -> None:
        """Starts counting."""
        self._is_running = True
        step_marks.add(self, self._end_step)
        silence_threads()

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
        # Of several optimizers that take turns, only the first is counted.
        if optimizer is self._optimizer():
            self.steps += 1
        self.on_step(optimizer)
        if self.steps == self.wanted:
            self.is_over = True
            raise StepsHaveEnded

    def failed(self, error: BaseException, arguments: Sequence[str]) -> None:
        """Records that the program ended with `error`; `arguments` are its arguments."""
        self._unknown_option = refused_option(error, options_in(arguments))

    def end(self) -> None:
        """Writes the status file."""
        # A forked child has copies of the exit handlers.
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
    """Adds the arguments that all modes share."""
    parser.add_argument("status", type=Path)
    parser.add_argument("steps", type=int)
    parser.add_argument("-m", dest="is_module", action="store_true")
    parser.add_argument("script")
    parser.add_argument("args", nargs=argparse.REMAINDER)


def run_first_steps(
    options: argparse.Namespace, make: Callable[[], FirstSteps], command: str
) -> int:
    """Runs the program for `command`. Its exceptions pass through, as in `recoup run`.

    The program ends when the process of the command ends.
    """
    end_with_parent()
    try:
        program = find_program(options)
    except OSError as error:
        print(f"{command}: {cannot_open(error)}", file=sys.stderr)
        return USAGE_ERROR
    steps = make()
    # Registered first, so it runs last, after the program's exit handlers.
    atexit.register(steps.end)
    steps.start()
    try:
        run_as_python(program)
    except BaseException as error:
        if steps.is_over and is_due_to_the_end(error):
            return 0
        steps.failed(error, options.args)
        raise
    return 0
