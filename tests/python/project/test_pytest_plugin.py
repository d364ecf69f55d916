"""The pytest plugin, in test suites of its own."""

import json
import subprocess
from pathlib import Path

import pytest

import warm_python

SUITE = """
import pytest
import torch

def use(count):
    kept = [torch.full((1 << 18,), 1.0) for _ in range(count)]  # a MiB each
    return torch.stack(kept).sum()

def test_small():
    use(2)

def test_large():
    use(8)

@pytest.mark.recoup(budget="64MiB")
def test_marked(recoup_run):
    use(8)
    assert recoup_run.stats().budget_bytes == 64 << 20
    assert recoup_run.stats().peak_bytes >= 16 << 20

@pytest.mark.recoup(budget=None)
def test_free(recoup_run):
    assert recoup_run is None
    use(8)

def test_wrong():
    assert use(1) == 0
"""


def run(folder: Path, *options: object, suite: str = SUITE) -> subprocess.CompletedProcess[str]:
    (folder / "test_suite.py").write_text(suite)
    (folder / "pytest.ini").write_text("[pytest]\n")
    words = [warm_python.REAL, "-m", "pytest", "-rA", "-p", "no:cacheprovider", *map(str, options)]
    return subprocess.run(words, capture_output=True, text=True, cwd=folder, check=False)


def outcomes(result: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """The outcome of each test, from the summary of -rA."""
    rows = [line.split() for line in result.stdout.splitlines() if "test_suite.py::" in line]
    known = ("PASSED", "FAILED", "ERROR")
    return {row[1].partition("::")[2]: row[0] for row in rows if row[0] in known}


def test_a_test_that_exceeds_the_budget_fails_with_the_holders(tmp_path: Path) -> None:
    result = run(tmp_path, "--recoup-budget", "6MiB")
    assert outcomes(result) == {
        "test_small": "PASSED",
        "test_large": "FAILED",
        "test_marked": "PASSED",
        "test_free": "PASSED",
        "test_wrong": "FAILED",
    }, result.stdout
    assert "OutOfBudgetError" in result.stdout
    assert "Memory held when the allocation failed, by module and kind" in result.stdout


def test_without_options_tests_run_as_before(tmp_path: Path) -> None:
    result = run(tmp_path)
    expected = dict.fromkeys(("test_small", "test_large", "test_marked", "test_free"), "PASSED")
    assert outcomes(result) == expected | {"test_wrong": "FAILED"}, result.stdout


def test_pytest_does_not_load_pytorch_for_other_suites(tmp_path: Path) -> None:
    suite = "import sys\ndef test_modules():\n    assert not {'torch', 'recoup'} & {*sys.modules}\n"
    assert run(tmp_path, suite=suite).returncode == 0


@pytest.mark.parametrize("workers", [0, 2])
def test_peaks_are_recorded_and_compared(tmp_path: Path, workers: int) -> None:
    options = ["--recoup-peaks", "peaks.json", *(["-n", workers] if workers else [])]
    run(tmp_path, *options)
    file = tmp_path / "peaks.json"
    peaks = json.loads(file.read_text())["peak_bytes"]
    names = {name.partition("::")[2] for name in peaks}
    assert names == {"test_small", "test_large", "test_marked"}
    assert 4 << 20 <= peaks["test_suite.py::test_small"] < 6 << 20

    grown = SUITE.replace("use(2)", "use(3)")
    result = run(tmp_path, *options, suite=grown)
    assert outcomes(result)["test_small"] == "FAILED"
    assert "bytes, more than " in result.stdout and "--recoup-peaks-update accepts" in result.stdout
    assert json.loads(file.read_text())["peak_bytes"] == peaks

    allowed = run(tmp_path, *options, "--recoup-peaks-tolerance", 60, suite=grown)
    assert outcomes(allowed)["test_small"] == "PASSED"

    result = run(tmp_path, *options, "--recoup-peaks-update", suite=grown)
    assert outcomes(result)["test_small"] == "PASSED"
    assert json.loads(file.read_text())["peak_bytes"]["test_suite.py::test_small"] > 6 << 20


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--recoup-peaks-update"], "--recoup-peaks-update needs --recoup-peaks FILE"),
        (["--recoup-peaks", "test_suite.py"], "is not a file of --recoup-peaks"),
        (["--recoup-peaks", "no/such/folder/x"], "its directory does not exist"),
        (
            ["--recoup-peaks", "x", "--recoup-peaks-tolerance", "-1"],
            "--recoup-peaks-tolerance must be 0 or more; got -1",
        ),
    ],
)
def test_wrong_options_are_usage_errors(tmp_path: Path, options: list[str], said: str) -> None:
    result = run(tmp_path, *options)
    assert result.returncode == 4
    assert said in result.stderr, result.stderr


@pytest.mark.parametrize("jobs", ["0", "2"])
def test_a_wrong_budget_is_reported_once(tmp_path: Path, jobs: str) -> None:
    result = run(tmp_path, "--recoup-budget", "much", "-n", jobs)
    assert result.returncode == 4
    said = "--recoup-budget 'much' is not a size; it must be a whole number of bytes"
    assert (result.stdout + result.stderr).count(said) == 1
    assert not outcomes(result)


CASES = """
import unittest
import pytest
import torch

def use(count):
    kept = [torch.full((1 << 18,), 1.0) for _ in range(count)]
    return torch.stack(kept).sum()

@pytest.fixture
def large():
    return use(8)

def test_of_a_large_fixture(large):
    pass

class TestOfUnittest(unittest.TestCase):
    def test_large(self):
        use(8)

    def test_small(self):
        use(1)

@pytest.mark.recoup(budget="64MiB")
class TestOfAClass:
    def test_inherits(self):
        use(8)

    @pytest.mark.recoup(budget="8KiB")
    def test_overrides(self):
        use(8)

    @pytest.mark.recoup(budget="8KiB")
    @pytest.mark.parametrize("n", [pytest.param(8, marks=pytest.mark.recoup(budget="48MiB"))])
    def test_of_parameters(self, n, recoup_run):
        use(n)
        assert recoup_run.stats().budget_bytes == 48 << 20

kept = []

def test_that_keeps_more_than_fits():
    kept.extend(torch.full((1 << 18,), 1.0) + 1 for _ in range(8))

def test_after_it():
    use(1)
"""


def test_fixtures_classes_and_unittest(tmp_path: Path) -> None:
    result = run(tmp_path, "--recoup-budget", "6MiB", suite=CASES)
    found = outcomes(result)
    assert found == {
        "test_of_a_large_fixture": "ERROR",
        "TestOfUnittest::test_large": "FAILED",
        "TestOfUnittest::test_small": "PASSED",
        "TestOfAClass::test_inherits": "PASSED",
        "TestOfAClass::test_overrides": "FAILED",
        "TestOfAClass::test_of_parameters[8]": "PASSED",
        "test_that_keeps_more_than_fits": "ERROR",
        "test_after_it": "PASSED",
    }, result.stdout
    assert result.stdout.count("Memory held when the allocation failed") >= 3, result.stdout
    assert "2 errors" in result.stdout


MARKERS = """
import pytest

@pytest.mark.recoup(bugdet="64MiB")
def test_misspelt():
    pass

@pytest.mark.recoup(spill="1GiB")
def test_no_budget(recoup_run):
    assert recoup_run.stats().budget_bytes == 64 << 20
"""


def test_a_marker_without_a_budget_is_not_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = outcomes(run(tmp_path, suite=MARKERS))
    assert found == {"test_misspelt": "ERROR", "test_no_budget": "ERROR"}
    monkeypatch.setenv("RECOUP_BUDGET", "64MiB")
    found = outcomes(run(tmp_path, suite=MARKERS))
    assert found == {"test_misspelt": "ERROR", "test_no_budget": "PASSED"}


GROUP = """
import pytest, torch

@pytest.mark.xdist_group("g")
@pytest.mark.parametrize("name", ["a@b"])
def test_grouped(name):
    torch.ones(COUNT << 20, dtype=torch.uint8)
"""


def test_peaks_of_a_group_of_xdist(tmp_path: Path) -> None:
    """Its name is added to the ids of tests, if they are distributed by groups."""
    file = tmp_path / "peaks.json"
    distributed = ("-n2", "--dist", "loadgroup")
    run(tmp_path, "--recoup-peaks", file, suite=GROUP.replace("COUNT", "1"))
    result = run(tmp_path, "--recoup-peaks", file, *distributed, suite=GROUP.replace("COUNT", "4"))
    assert result.returncode == 1 and "peak of tensor memory" in result.stdout
    assert list(json.loads(file.read_text())["peak_bytes"]) == ["test_suite.py::test_grouped[a@b]"]
