"""Runs checks one after the other, each in its own process, and records the result of each."""

import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import page
import plan
import results
from harness import ROOT, Ended, supervise, write_atomically
from plan import Check
from results import Outcome, Outcomes
from rows import ROWS, SKIP_STATUS, read_rows

HERE = Path(__file__).parent
TESTS = ROOT / "tests/python"


@dataclass(frozen=True)
class Place:
    """Where and on which device the checks run."""

    out: Path
    """Folder of all output."""
    device: str
    rehearsal: bool
    no_gpu: str
    """Why no check on a GPU can run; empty if they can."""
    own_recoup: bool
    """Whether recoup is built here; otherwise the installed one is used."""

    @property
    def site(self) -> Path:
        """Folder into which the build check installs recoup."""
        return self.out / "build/site"


class Runner:
    """Runs a selection of checks within a time limit."""

    def __init__(self, place: Place, found: Outcomes) -> None:
        self._place = place
        self._found = found
        self._logs = place.out / "logs"
        self._logs.mkdir(parents=True, exist_ok=True)
        signal.signal(signal.SIGTERM, _interrupt)

    def run(self, checks: list[Check], seconds: float) -> None:
        """Runs the checks that have no result; those beyond the time limit wait for another run."""
        deadline = time.monotonic() + seconds
        self._build_again_if_lost(checks)
        for check in checks:
            if self._found.is_done(check.name):
                say(f"{check.name}: done before, {self._found.outcomes[check.name].status}")
                continue
            self._keep(check, self._outcome(check, deadline))

    def _build_again_if_lost(self, checks: list[Check]) -> None:
        """Adds the build if its result is missing: every part needs it, also on another machine."""
        if self._place.own_recoup and not (self._place.site / "recoup").is_dir():
            self._found.outcomes.pop(plan.BUILD.name, None)
            if plan.BUILD not in checks:
                checks.insert(0, plan.BUILD)

    def _outcome(self, check: Check, deadline: float) -> Outcome:
        left = deadline - time.monotonic()
        if check == plan.BUILD and not self._place.own_recoup:
            return Outcome(results.SKIPPED, reason="recoup is installed already")
        if check.needs_gpu and self._place.no_gpu:
            return Outcome(results.SKIPPED, reason=self._place.no_gpu)
        if check != plan.BUILD and self._build_failed():
            return Outcome(results.SKIPPED, reason="recoup could not be built")
        if left < plan.LEAST_SECONDS:
            return Outcome(results.NO_TIME, reason="run this part again to go on with it")
        return self._run(check, min(check.seconds, left))

    def _build_failed(self) -> bool:
        outcome = self._found.outcomes.get(plan.BUILD.name)
        return self._place.own_recoup and (outcome is None or outcome.status != results.OK)

    def _run(self, check: Check, seconds: float) -> Outcome:
        name = "".join(each if each.isalnum() else "-" for each in check.name)
        rows, log = self._logs / f"{name}.jsonl", self._logs / f"{name}.log"
        rows.unlink(missing_ok=True)
        running = Outcome(results.RUNNING)
        self._keep(check, running)

        def look() -> None:
            """Records the rows that the check has reported since the last look."""
            known = read_rows(rows)
            if known != running.rows:
                running.rows = known
                self._write()

        command = [
            sys.executable, str(HERE / "checks" / check.program),
            check.arguments(self._place.device, self._place.rehearsal, seconds),
        ]  # fmt: skip
        ended = supervise(command, seconds, self._environment(rows), log, look)
        return _judged(ended, read_rows(rows), seconds < check.seconds)

    def _environment(self, rows: Path) -> dict[str, str]:
        folders = [str(HERE), *(str(TESTS / each) for each in ("gpu", "support", "programs", "."))]
        if self._place.own_recoup:
            folders.insert(0, str(self._place.site))
        known = filter(None, [*folders, os.environ.get("PYTHONPATH")])
        own = {
            ROWS: str(rows),
            "FIRST_HOUR_BUILD": str(self._place.out / "build"),
            "PYTHONPATH": os.pathsep.join(known),
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "TORCH_CPP_LOG_LEVEL": "ERROR",
        }
        built = list((self._place.out / "build").glob("tests/torch/test_device/_test_device*.so"))
        if built:
            own["RECOUP_TEST_DEVICE"] = str(built[0])
        return os.environ | own

    def _keep(self, check: Check, outcome: Outcome) -> None:
        if outcome.status != results.RUNNING:
            reason = f": {outcome.reason}" if outcome.reason else ""
            say(f"{check.name}: {outcome.status}, {outcome.seconds:.0f} s{reason}")
        self._found.outcomes[check.name] = outcome
        self._write()

    def _write(self) -> None:
        self._found.write(self._place.out / "results.json")
        write_atomically(self._place.out / "page.html", page.render(self._found))


def _judged(ended: Ended, rows: list[dict[str, object]], cut: bool) -> Outcome:
    """The outcome for an end. cut: the time limit was below the check's own."""
    outcome = Outcome(ended.result_name, ended.seconds, ended.reason, rows, ended.output)
    if ended.status is None and cut:
        outcome.status, outcome.reason = results.NO_TIME, f"{ended.reason}, when time was up"
    elif ended.status == SKIP_STATUS:
        outcome.status = results.SKIPPED
    return outcome


def _interrupt(number: int, _: object) -> NoReturn:
    """Exits as on Ctrl-C, which also kills the running check."""
    sys.exit(128 + number)


def say(text: str) -> None:
    print(text, flush=True)
