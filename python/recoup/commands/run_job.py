"""What goes on around a program in `recoup run`: its scope, its progress, its files."""

import argparse
import json
import os
import platform
import time
from typing import Any

import torch

import recoup
from recoup.commands.own_lines import OwnLines
from recoup.commands.progress import Progress
from recoup.commands.run_summary import summary_lines
from recoup.errors import OutOfBudgetError
from recoup.files import write_atomically
from recoup.run import Budget, Run


class Job:
    """The scope around a program, its progress line, its report and its summary."""

    def __init__(
        self,
        budget: Budget,
        settings: dict[str, Any],
        options: argparse.Namespace,
        own: OwnLines,
    ) -> None:
        self._budget = budget
        self._settings = settings
        self._options = options
        self._own = own
        self._process = os.getpid()
        self._start_ns = time.monotonic_ns()
        self._run: Run | None = None
        self._progress: Progress | None = None

    def start(self) -> None:
        """Enters the scope. Raises RuntimeError or ValueError where there can be none."""
        self._run = self._budget.__enter__()
        if self._options.progress:
            self._progress = Progress(self._run.stats, self._own)
            self._progress.start()

    def end(self) -> None:
        """Leaves the scope when the program is over, writes what is to be written and sums up."""
        # A child that was forked has copies of our exit handlers.
        if self._run is None or os.getpid() != self._process:
            return
        if self._progress is not None:
            self._progress.stop()
        files: dict[str, str] = {}
        try:
            self._leave(self._run)
            if self._settings["trace"] is not None:
                files["trace"] = self._settings["trace"]
        except OSError as error:
            self._own.say_at_the_end(f"recoup run: cannot write the trace: {error}")
        if self._options.report is not None:
            try:
                write_atomically(self._options.report, self._report_json(self._run))
                files["report"] = str(self._options.report)
            except OSError as error:
                self._own.say_at_the_end(f"recoup run: cannot write the report: {error}")
        if not self._options.quiet:
            cost_model = self._settings["cost_model"]
            self._own.say_at_the_end(*summary_lines(self._run.stats(), cost_model, files))

    def _leave(self, run: Run) -> None:
        # The program is over: what is not there, or does not fit, is wanted by nobody.
        if self._settings["spill"] is not None:
            run._abandon()
            return
        try:
            self._budget.__exit__(None, None, None)
        except OutOfBudgetError:
            run._abandon()

    def _report_json(self, run: Run) -> str:
        report = {
            "command": [self._options.script, *self._options.args],
            "settings": self._settings,
            "versions": {
                "recoup": recoup.__version__,
                "torch": str(torch.__version__),
                "python": platform.python_version(),
            },
            "wall_ns": time.monotonic_ns() - self._start_ns,
            "stats": run.stats().to_groups(),
            "pinned": run.pinned(),
        }
        return json.dumps(report, indent=2) + "\n"
