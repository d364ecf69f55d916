"""tools/peer_tests reports tests of a suite that behave differently in a scope."""

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[3] / "tools" / "peer_tests"

SAME = """
import torch

def test_sum():
    values = torch.arange(4096.0).mul(0.5)
    torch.testing.assert_close(values.add(1).sum(), values.sum() + 4096)

def test_fails_by_itself():
    raise KeyError("plain")
"""

OTHER = """
import ctypes
import os

import pytest
import torch

import recoup

in_scope = recoup._C.active

@pytest.fixture(params=[0, 1])
def number(request):
    return request.param

def test_number(number):
    assert number in (0, 1)

def test_fails_in_a_scope(number):
    assert not (number and in_scope())

def test_compares_others():
    value = torch.tensor(1.0 if in_scope() else 2.0)
    torch.testing.assert_close(value, value)

def test_other_error():
    raise KeyError if in_scope() else ValueError

@pytest.mark.skipif(not in_scope(), reason="outside")
def test_skipped():
    pass

def test_crash():
    if in_scope():
        os._exit(7)

def test_after_the_crash():
    pass

def test_hang():
    while in_scope():
        ctypes.PyDLL(None).sleep(100)  # with the GIL, as a deadlock in C++
"""

REPORTED = (
    "- `test_other.py::test_fails_in_a_scope[1]`: passed plain, failed in a scope: AssertionError",
    "- `test_other.py::test_compares_others`: other values among the 2 that it compared",
    "- `test_other.py::test_other_error`: another error: KeyError",
    "- `test_other.py::test_crash`: passed plain, crash in a scope: exit status 7",
    "- `test_other.py::test_hang`: passed plain, hang in a scope: exit status 1",
)


def run(suite: Path, out: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(TOOL), str(suite), "--out", str(out), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


@pytest.mark.serial
def test_differences_are_reported(tmp_path: Path) -> None:
    suite = tmp_path / "suite"
    suite.mkdir()
    (suite / "test_same.py").write_text(SAME)
    (suite / "test_other.py").write_text(OTHER)
    out = tmp_path / "out"
    result = run(suite, out, "--mode", "force", "--together", "--test-seconds", "10")
    assert result.returncode == 1, result.stderr
    lines = result.stdout.splitlines()
    assert (out / "comparison.md").read_text() == result.stdout
    reported = [line for line in lines if line.startswith("- ")]
    assert len(reported) == len(REPORTED), result.stdout
    assert all(map(str.startswith, reported, REPORTED)), result.stdout
    row = [cell.strip() for cell in lines[2].strip("|").split("|")]
    # test_sum has evictions, and the two tests that fail without recoup are compared, too.
    assert row[:5] == ["suite", "force", "11", "9", "6"]
    assert int(row[5].replace(",", "")) > 0


def test_no_difference(tmp_path: Path) -> None:
    suite = tmp_path / "test_same.py"
    suite.write_text(SAME)
    result = run(suite, tmp_path / "out", "--mode", "loose", "--", "-k", "not sum")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "| test_same | loose | 1 | 0 | 0 |" in result.stdout


def test_suite_without_tests(tmp_path: Path) -> None:
    result = run(tmp_path, tmp_path / "out")
    assert result.returncode == 2
    assert "has no test files" in result.stderr
