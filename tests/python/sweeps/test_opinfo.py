"""All operators that PyTorch has samples for, with everything evicted after every op.

The short form takes a seeded fraction of each operator's samples. Another seed:
RECOUP_OPINFO_SEED=2.
One operator, in this process: `python tests/python/script.py opinfo_worker --only add`.
"""

import collections
import contextlib
import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.serial

WORKER = Path(__file__).with_name("opinfo_worker.py")
WORKERS = 2
HANG_SECONDS = 300  # suffices on a busy machine, too
FRACTIONS = (pytest.param(0.1, id="some"), pytest.param(1.0, id="all", marks=pytest.mark.slow))


@dataclass
class Report:
    fraction: float = 1.0
    """Of the samples."""
    done: dict[str, dict[str, Any]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def total(self, key: str) -> int:
        return sum(result[key] for result in self.done.values())


class Shard(threading.Thread):
    """Starts worker processes until all of its operators are done: a crash costs one operator."""

    def __init__(self, indices: list[int], arguments: list[str], report: Report) -> None:
        super().__init__()
        self._left = indices
        self._arguments = arguments
        self._report = report

    def run(self) -> None:
        while self._left:
            before = len(self._left)
            self._run_worker()
            if len(self._left) == before:  # it did not even start, and would fail again
                return

    def _run_worker(self) -> None:
        command = [sys.executable, str(WORKER), "--indices", "-", *self._arguments]
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"TORCH_CPP_LOG_LEVEL": "ERROR"},
        ) as worker:
            assert worker.stdin and worker.stdout and worker.stderr
            errors: collections.deque[str] = collections.deque(maxlen=12)
            reader = threading.Thread(target=errors.extend, args=(worker.stderr,))
            reader.start()
            with contextlib.suppress(BrokenPipeError):
                worker.stdin.write(json.dumps(self._left))
                worker.stdin.close()
            running = self._follow(worker)
            status = worker.wait()
            reader.join()
        if status != 0 or running:
            self._report.failures.append(
                f"{running or 'before the first operator'}: the worker ended with {status}: "
                + "".join(errors)[-1500:]
            )

    def _follow(self, worker: subprocess.Popen[str]) -> str:
        """Reads the worker's lines; returns the operator that was running when they ended."""
        assert worker.stdout
        running = ""
        alarm = threading.Timer(HANG_SECONDS, worker.kill)
        alarm.start()
        for line in worker.stdout:
            alarm.cancel()
            alarm = threading.Timer(HANG_SECONDS, worker.kill)
            alarm.start()
            row = json.loads(line)
            if "start" in row:
                running = row["op"]
                self._left = self._left[self._left.index(row["start"]) + 1 :]
            else:
                running = ""
                self._report.done[row["op"]] = row
                self._report.failures += [f"{row['op']}: {text}" for text in row["failures"]]
        alarm.cancel()
        return running


def run_all(*arguments: str, fraction: float = 1.0) -> Report:
    from torch.testing._internal.common_methods_invocations import op_db

    report = Report(fraction)
    seed = os.environ.get("RECOUP_OPINFO_SEED", "0")
    words = [*arguments, "--fraction", str(fraction), "--seed", seed]
    shards = [
        Shard(list(range(len(op_db)))[first::WORKERS], words, report) for first in range(WORKERS)
    ]
    for shard in shards:
        shard.start()
    for shard in shards:
        shard.join()
    return report


def assert_all_right(report: Report) -> None:
    failures = report.failures
    operators = {text.split(":")[0] for text in failures}
    assert not failures, f"{len(failures)} failures in {len(operators)} operators:\n" + "\n".join(
        text[:700] for text in failures[:40]
    )


@pytest.fixture(scope="module", params=FRACTIONS)
def report(request: pytest.FixtureRequest) -> Report:
    return run_all(fraction=request.param)


def test_every_operator(report: Report) -> None:
    assert_all_right(report)


def test_every_operator_ran(report: Report) -> None:
    # A few operators have no CPU kernel; the others ran, were evicted and were replayed.
    done = report.done
    idle = [name for name, row in done.items() if row["samples"] == row["raised"]]
    assert len(done) >= 700 and len(idle) <= 10, (len(done), idle)
    assert report.total("samples") - report.total("raised") > 25_000 * report.fraction
    replayed = [name for name, row in done.items() if row["replays"] > 0]
    assert len(replayed) > 0.9 * len(done), f"only {len(replayed)} of {len(done)} were replayed"
    assert report.total("replays") > 10 * len(done)


def test_exclusions_are_few() -> None:
    from torch.testing._internal.common_methods_invocations import op_db

    from opinfo_worker import EXCLUDED

    names = {op.name for op in op_db}
    assert names.issuperset(EXCLUDED), "an exclusion that excludes nothing"
    assert sum(op.name in EXCLUDED for op in op_db) < 0.02 * len(op_db)
    assert all(EXCLUDED.values()), "an exclusion without a reason"


@pytest.mark.slow
def test_two_plain_runs_agree() -> None:
    """Except for excluded operators; otherwise a difference would not indicate an error."""
    from opinfo_worker import EXCLUDED

    differing = {text.split(":")[0] for text in run_all("--plain").failures}
    assert {name.removesuffix(".grad_oriented") for name in differing} == set(EXCLUDED)
