"""The scope, the progress line and the output files of a program in `recoup run`."""

import argparse
import dataclasses
import functools
import importlib
import json
import os
import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from recoup._patching import step_marks, threads
from recoup._reporting.files import write_atomically
from recoup._reporting.moments import chrome_json
from recoup._reporting.page_data import page_data
from recoup._reporting.report import budget_line, copies_line, shared_line
from recoup._reporting.step_times import StepRatio, StepTimes
from recoup.budgets import Budget
from recoup.commands.own_lines import OwnLines
from recoup.commands.progress import Progress
from recoup.commands.run.settings import is_page
from recoup.commands.run.summary import steps_line, summary_lines
from recoup.errors import OutOfBudgetError
from recoup.run import Run


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
        self._step_times: StepTimes | None = None

    def start(self) -> None:
        """Enters the scope. Raises RuntimeError or ValueError if a budget is not possible here."""
        if is_page(self._options.report):
            # Not at the end: loading a module may execute code from text, and then Python
            # forgets that Ctrl-C ended the program.
            importlib.import_module("recoup.page")
        threads.say = lambda message: self._own.say(f"recoup run: {message}")
        self._run = self._budget.__enter__()
        if self._options.plain_steps_ns is not None:
            self._step_times = StepTimes()
            step_marks.add(self._step_times, self._step_times.end_step)
        if self._options.progress:
            self._progress = Progress(self._run.stats, self._own)
            self._progress.start()

    def failed(self, error: BaseException) -> None:
        """Records for the report that the program ended with `error`."""
        if self._run is not None and os.getpid() == self._process:
            self._run._note_failure(error, "body")

    def end(self) -> bool:
        """Leaves the scope after the program ended, writes the files and prints the summary.

        Returns whether all files were written.
        """
        # A forked child has copies of the exit handlers.
        if self._run is None or os.getpid() != self._process:
            return True
        if self._progress is not None:
            self._progress.stop()
        if self._step_times is not None:
            step_marks.remove(self._step_times)
        files: dict[str, str] = {}
        is_complete = True
        try:
            self._leave(self._run)
            if self._settings["trace"] is not None:
                files["trace"] = self._settings["trace"]
        except OSError as error:
            is_complete = False
            self._own.say_at_the_end(f"recoup run: cannot write the trace: {error}")
        for what, file, text in self._files(self._run):
            try:
                write_atomically(file, text())
                files[what] = str(file)
            except OSError as error:
                is_complete = False
                self._own.say_at_the_end(f"recoup run: cannot write the {what}: {error}")
        if not self._options.quiet:
            self._own.say_at_the_end(*self._summary(self._run, files))
        return is_complete

    def _summary(self, run: Run, files: dict[str, str]) -> list[str]:
        changes, shared = run.budget_changes(), run.shared_budget()
        further = []
        if self._step_times is not None:
            further.append(steps_line(self._step_ratio()))
        if self._settings["spill"] is not None:
            further.append(copies_line(run.stats()))
        if changes or self._options.adapt:
            further.append(budget_line(changes))
        if shared:
            further.append(shared_line(shared))
        return summary_lines(
            run.stats(),
            self._settings["cost_model"],
            files,
            changes,
            further,
            source=self._options.budget_source,
            non_tensor_bytes=run.non_tensor_peak_bytes(),
        )

    def _step_ratio(self) -> StepRatio | None:
        if self._step_times is None:
            return None
        return StepRatio.of(self._step_times.steps_ns, self._options.plain_steps_ns)

    def _leave(self, run: Run) -> None:
        # The program is over, so no code needs the values that are evicted or spilled.
        if any(self._settings[each] for each in ("spill", "adapt", "share")):
            run._abandon()
            return
        try:
            self._budget.__exit__(None, None, None)
        except OutOfBudgetError:
            run._abandon()

    def _files(self, run: Run) -> Iterator[tuple[str, Path, Callable[[], str]]]:
        """The report and the timeline if requested: name, path, and a function that makes it."""
        report, timeline = self._options.report, self._options.timeline
        if report is not None:
            yield "report", report, self._page if is_page(report) else self._json
        if timeline is not None:
            drawn = functools.partial(chrome_json, run.timeline(), run.stats().budget_bytes)
            yield "timeline", timeline, drawn

    def _data(self) -> dict[str, Any]:
        assert self._run is not None
        data = page_data(
            self._run,
            title=shlex.join([Path(self._options.script).name, *self._options.args]),
            command=[self._options.script, *self._options.args],
            wall_ns=time.monotonic_ns() - self._start_ns,
            suggestions=self._options.suggestions,
        )
        # The size of a budget such as "60%" or "auto".
        shared = self._run.shared_budget()
        budget = shared.total_bytes if shared else self._run.stats().budget_bytes
        if (ratio := self._step_ratio()) is not None:
            data["step_ratio"] = dataclasses.asdict(ratio)
        return data | {"settings": {**self._settings, "budget": budget}}

    def _page(self) -> str:
        from recoup.page import render

        return render(self._data())

    def _json(self) -> str:
        data = self._data()
        del data["step"], data["suggestions"]  # only pages show them
        return json.dumps(data, indent=2) + "\n"
