"""Options, marker, fixture and hooks: `pytest --recoup-budget 512MiB`."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from recoup_pytest.peaks import Peaks

if TYPE_CHECKING:
    from recoup import Run

_MARKER = "recoup"
_PEAK = "recoup_peak_bytes"
_NAME = "recoup_test_name"
_RUN = pytest.StashKey["Run"]()
_FAILED = pytest.StashKey[bool]()
_PEAKS = pytest.StashKey[Peaks]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options."""
    group = parser.getgroup("recoup", "memory budgets of recoup")
    group.addoption(
        "--recoup-budget",
        metavar="SIZE",
        help="run each test in this budget, such as 512MiB or auto; a marker "
        "@pytest.mark.recoup(budget=...) overrides it",
    )
    group.addoption(
        "--recoup-peaks",
        metavar="FILE",
        help="compare the peak of each test's tensor memory with FILE, and add tests that it lacks",
    )
    group.addoption(
        "--recoup-peaks-tolerance",
        metavar="PERCENT",
        type=float,
        default=5.0,
        help="fail a test whose peak exceeds that in the file of --recoup-peaks by more "
        "(default: 5)",
    )
    group.addoption(
        "--recoup-peaks-update",
        action="store_true",
        help="write all peaks to the file of --recoup-peaks, and compare none",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Registers the marker, and reads the file of peaks."""
    config.addinivalue_line(
        "markers",
        f"{_MARKER}(budget, **arguments): run the test in recoup.budget(budget, **arguments); "
        "budget=None: in none",
    )
    file = config.getoption("--recoup-peaks")
    tolerance = config.getoption("--recoup-peaks-tolerance")
    update = config.getoption("--recoup-peaks-update")
    if update and file is None:
        raise pytest.UsageError("--recoup-peaks-update needs --recoup-peaks FILE")
    if not tolerance >= 0:
        raise pytest.UsageError(f"--recoup-peaks-tolerance must be 0 or more; got {tolerance:g}")
    if file is not None:
        try:
            config.stash[_PEAKS] = Peaks.read(file, tolerance, update=update)
        except (OSError, ValueError) as error:
            raise pytest.UsageError(f"--recoup-peaks: {error}") from None


@pytest.fixture(autouse=True)
def recoup_run(request: pytest.FixtureRequest) -> Iterator[Run | None]:
    """The `recoup.Run` of the test's budget; None if the test has none."""
    arguments = _arguments(request.node)
    if arguments is None:
        yield None
        return
    import recoup

    stash = request.node.stash
    stash[_FAILED] = False
    scope = recoup.budget(**arguments)
    run = stash[_RUN] = scope.__enter__()
    yield run
    del stash[_RUN]
    try:
        scope.__exit__(None, None, None)
    except recoup.OutOfBudgetError:
        run._abandon()
        # The traceback of a failed test keeps tensors alive, and its error has been reported.
        if not stash[_FAILED]:
            raise


def _arguments(item: pytest.Item) -> dict[str, Any] | None:
    """The arguments of `recoup.budget` for the test; None: it has no budget."""
    arguments: dict[str, Any] = {}
    is_marked = False
    if (size := item.config.getoption("--recoup-budget")) is not None:
        arguments["budget"] = size
    elif _PEAKS in item.config.stash:
        # As much as there can be, for the peak alone.
        from recoup._memory import machine

        arguments["budget"] = machine.look().most.limit_bytes
    for node in item.listchain():  # from the session to the test, whose markers count most
        for marker in node.own_markers:
            if marker.name == _MARKER:
                arguments |= _of_marker(item, marker)
                is_marked = True
    if arguments.get("budget") is None and ("budget" in arguments or not is_marked):
        return None
    return {"device": "cpu", "profile": "modules"} | arguments


def _name_of(item: pytest.Item) -> str:
    """The test's name in the file of peaks: its id, to which pytest-xdist may add its group."""
    return item.nodeid if item.parent is None else f"{item.parent.nodeid}::{item.name}"


def _of_marker(item: pytest.Item, marker: pytest.Mark) -> dict[str, Any]:
    if len(marker.args) > 1:
        raise pytest.UsageError(
            f"{item.nodeid}: @pytest.mark.{_MARKER} has one positional argument, the budget"
        )
    return {**dict(zip(("budget",), marker.args, strict=False)), **marker.kwargs}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Compares the peak of a test that passes."""
    result = yield
    run = item.stash.get(_RUN, None)
    if run is None or _unittest_error(item) is not None:
        return result
    peak = run.stats().peak_bytes
    item.user_properties.append((_PEAK, peak))
    peaks = item.config.stash.get(_PEAKS, None)
    rise = "" if peaks is None else peaks.rise(_name_of(item), peak)
    if rise:
        pytest.fail(rise, pytrace=False)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Notes the holders of memory in an error of a test or of its fixtures."""
    run = item.stash.get(_RUN, None)
    excinfo = call.excinfo or _unittest_error(item)
    if run is not None and excinfo is not None:
        item.stash[_FAILED] = True
        run._note_failure(excinfo.value, "body")
    report = yield
    setattr(report, _NAME, _name_of(item))  # pytest-xdist sends attributes, too
    return report


def _unittest_error(item: pytest.Item) -> pytest.ExceptionInfo[BaseException] | None:
    """The error of a test of unittest, which pytest reports later."""
    errors: list[pytest.ExceptionInfo[BaseException]] = getattr(item, "_excinfo", None) or []
    return next(iter(errors), None)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Rejects a wrong budget, and collects the peaks of all reports in the process that gets them.

    Before this hook recoup must not be imported, since it loads PyTorch: a conftest.py may set
    variables that PyTorch reads.
    """
    _check_budget(session.config.getoption("--recoup-budget"))
    peaks = session.config.stash.get(_PEAKS, None)
    if peaks is not None and not hasattr(session.config, "workerinput"):
        session.config.pluginmanager.register(_Collector(peaks), "recoup-peaks")


def _check_budget(size: str | None) -> None:
    if size is None:
        return
    import recoup

    try:
        recoup.budget(size, device="cpu")
    except ValueError as error:
        message = str(error).removeprefix("budget ")
        raise pytest.UsageError(f"--recoup-budget {message}") from None


class _Collector:
    """Writes the peaks of all tests that passed when the session ends."""

    def __init__(self, peaks: Peaks) -> None:
        self._peaks = peaks

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            for name, value in report.user_properties:
                if name == _PEAK and isinstance(value, int):
                    self._peaks.add(getattr(report, _NAME), value)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        try:
            self._peaks.write()
        except OSError as error:
            session.config.get_terminal_writer().line(f"\n--recoup-peaks: {error}", red=True)
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
