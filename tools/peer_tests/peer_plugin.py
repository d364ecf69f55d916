"""A pytest plugin that runs each test in a scope of its own and records the result.

Environment variables configure it: PEER_MODE (a mode of modes.py), PEER_RECORDS (the file for
records), PEER_PLAIN (records of a plain run, whose skipped tests are left out), PEER_PEAKS (records
whose peaks determine budgets), PEER_SECONDS (time limit of a test), PEER_TOTAL (seconds after which
no further test begins), PEER_EVERY (run each n-th test).
"""

import faulthandler
import importlib
import os
import random
import time
from collections.abc import Generator
from pathlib import Path
from types import TracebackType
from typing import Any

import modes
import pytest
import records
import torch
from digests import Digest
from records import Record

import recoup
from recoup.bench.flat_options import split

Raised = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]

MODE = os.environ["PEER_MODE"]
RECORDS = Path(os.environ["PEER_RECORDS"])
SECONDS = float(os.environ["PEER_SECONDS"])
TOTAL = float(os.environ["PEER_TOTAL"])
EVERY = int(os.environ["PEER_EVERY"])
# Name of the running test, for the runner in case the process does not survive it.
CURRENT = RECORDS.with_suffix(".current")
TRACEBACK = RECORDS.with_suffix(".traceback")
ERROR_LENGTH = 3000
NO_SCOPE = (None, None, None)

digest = Digest()


class Scope:
    """The scope around one test; none in a plain run."""

    def __init__(self, test: str) -> None:
        self.evictions = self.replays = self.peak_bytes = 0
        self.exit_error = ""
        self._budget: Any = None
        if MODE in modes.SCOPES:
            mode = modes.SCOPES[MODE]
            size = modes.BUDGET
            if mode.needs and test in peaks:
                size = peaks[test].peak_bytes + modes.SLACK
            self._budget = recoup.budget(size, **split(mode.options))
            self._run = self._budget.__enter__()

    def end(self, raised: Raised) -> None:
        if self._budget is None:
            return
        stats = self._run.stats()
        self.evictions, self.replays = stats.evictions, stats.replays
        self.peak_bytes = stats.peak_bytes
        try:
            self._budget.__exit__(*raised)
        except Exception as error:
            self.exit_error = repr(error)[:ERROR_LENGTH]
            self._finish()

    def _finish(self) -> None:
        try:
            self._run.resume(2 * modes.BUDGET)
        except Exception as error:
            pytest.exit(f"the scope of a test stays open: {error!r}", returncode=3)


def _read(variable: str) -> dict[str, Record]:
    path = os.environ.get(variable)
    return records.read(Path(path)) if path else {}


peaks = _read("PEER_PEAKS")
scopes: dict[str, Scope] = {}
end = 0.0


def draw_same_examples() -> None:
    """Makes Hypothesis generate the same examples in each run."""
    try:
        settings = importlib.import_module("hypothesis").settings
    except ImportError:
        return
    settings.register_profile("peer", derandomize=True, database=None, deadline=None)
    settings.load_profile("peer")


def pytest_configure() -> None:
    real = torch.testing.assert_close

    def assert_close(actual: Any, expected: Any, **options: Any) -> None:
        digest.add(actual, expected)
        real(actual, expected, **options)

    torch.testing.assert_close = assert_close
    faulthandler.enable(TRACEBACK.open("w"))
    draw_same_examples()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    done = records.read(RECORDS)
    plain = _read("PEER_PLAIN")

    def wanted(item: pytest.Item) -> bool:
        if item.nodeid in done:
            return False
        return not plain or (item.nodeid in plain and plain[item.nodeid].outcome != "skipped")

    items[:] = [item for item in items[::EVERY] if wanted(item)]


def pytest_collection_finish() -> None:
    """Loads lazily loaded code, so that it does not count for a test's time."""
    global end
    scope = Scope("")
    torch.testing.assert_close(torch.ones(2).sum(), torch.tensor(2.0))
    scope.end(NO_SCOPE)
    end = time.monotonic() + TOTAL


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    CURRENT.write_text(item.nodeid, encoding="utf-8")
    with TRACEBACK.open("w") as file:
        faulthandler.dump_traceback_later(SECONDS, exit=True, file=file)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()
            if time.monotonic() > end:
                item.session.shouldstop = "the time of this process is over"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    digest.clear()
    random.seed(0)
    torch.manual_seed(0)
    scope = scopes[item.nodeid] = Scope(item.nodeid)
    try:
        result = yield
    except BaseException as error:
        scope.end((type(error), error, error.__traceback__))
        raise
    scope.end(NO_SCOPE)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when == "call" or report.outcome != "passed":
        record = Record(item.nodeid, report.outcome, round(call.duration, 4))
        if report.outcome == "failed" and call.excinfo is not None:
            text = str(report.longrepr)
            record.error = f"{call.excinfo.exconly()[:ERROR_LENGTH]}\n{text[-ERROR_LENGTH:]}"
        elif report.outcome == "skipped":
            record.error = str(report.longrepr)[-ERROR_LENGTH:]
        if call.when == "call":
            record.values, record.digest = digest.count(), digest.text()
            if scope := scopes.pop(item.nodeid, None):
                record.evictions, record.replays = scope.evictions, scope.replays
                record.peak_bytes, record.exit_error = scope.peak_bytes, scope.exit_error
        records.append(RECORDS, record)
    return report


def pytest_sessionfinish(exitstatus: int) -> None:
    if exitstatus != 3:
        CURRENT.unlink(missing_ok=True)
