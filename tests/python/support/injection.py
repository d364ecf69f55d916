"""A pytest plugin that repeats each test with an injected fault, for a number of faults.

    python -m pytest -p injection --inject fail-allocation --faults 50 tests/python/test_x.py

A test runs once without faults, which counts its allocations, replays and scopes. Then it runs with
a fault at the k-th of them, for values of k that grow geometrically: once with a transient fault
and once with a persistent one. Each time the test must pass or raise the injected error; its scopes
must be sound, no scope may stay open, and a final run without a fault must pass.
"""

import contextlib
from collections.abc import Iterator

import pytest
from _pytest.runner import runtestprotocol

import recoup
from recoup.run import Run

COUNTED = {
    "fail-allocation": "allocations",
    "force-eviction": "allocations",
    "fail-replay": "replays",
    "fail-spill": "spills",
    "fail-fetch": "fetches",
}
"""By kind of fault, the counter that k refers to."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--inject", choices=sorted(COUNTED), help="the kind of fault")
    parser.addoption("--faults", type=int, default=50, help="values of k for each test")


class Scopes:
    """The runs of a test: each is checked while its scope is open, and counted at its end."""

    def __init__(self) -> None:
        self.most = 0
        self.wrong: list[str] = []

    @contextlib.contextmanager
    def watched(self, what: str) -> Iterator[None]:
        leave = Run._leave
        scopes = self

        def watch(run: Run) -> None:
            try:
                run.check()
            except Exception as error:
                scopes.wrong.append(f"before its end: {error}")
            stats = run.stats()
            scopes.most = max(scopes.most, int(getattr(stats, what)))
            leave(run)

        Run._leave = watch  # type: ignore[method-assign]
        try:
            yield
        finally:
            Run._leave = leave  # type: ignore[method-assign]


def _values(most: int, count: int) -> list[int]:
    """Up to `count` numbers from 1 to `most` in an approximately geometric sequence."""
    if most <= count:
        return list(range(1, most + 1))
    return sorted({round(most ** (i / (count - 1))) for i in range(count)})


def _injected(report: pytest.TestReport) -> bool:
    text = str(report.longrepr)
    return "a test aid made" in text or "OutOfBudgetError" in text


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    kind = item.config.getoption("--inject")
    if not kind:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in _reports(item, nextitem, str(kind), int(item.config.getoption("--faults"))):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _run(
    item: pytest.Item, nextitem: pytest.Item | None, aids: str, what: str
) -> tuple[list[pytest.TestReport], Scopes]:
    scopes = Scopes()
    with pytest.MonkeyPatch.context() as patch, scopes.watched(what):
        patch.setenv("RECOUP_TEST_AIDS", aids)
        item._initrequest()  # type: ignore[attr-defined]
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
    return reports, scopes


def _reports(
    item: pytest.Item, nextitem: pytest.Item | None, kind: str, faults: int
) -> list[pytest.TestReport]:
    reports, scopes = _run(item, nextitem, "", COUNTED[kind])
    if any(not report.passed for report in reports):
        return reports
    for k in _values(scopes.most, faults):
        for lasts in ("", ",persistent"):
            aids = f"{kind}={k}{lasts}"
            again, struck = _run(item, nextitem, aids, COUNTED[kind])
            wrong = list(struck.wrong)
            wrong += [
                f"{report.when}: {report.longreprtext}"
                for report in again
                if report.failed and not _injected(report)
            ]
            if recoup._C.active():
                wrong.append("a scope is left open")
            if wrong:
                reports[1].outcome = "failed"
                reports[1].longrepr = f"{item.nodeid} with {aids}:\n" + "\n".join(wrong)
                return reports
    after, _ = _run(item, nextitem, "", COUNTED[kind])
    return after if any(not report.passed for report in after) else reports
