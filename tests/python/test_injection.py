"""Faults injected into tests as they are: a short form of `make test-injection`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SUITES = ["test_composites.py", "test_opaque_ops.py", "test_contract_versions.py"]


@pytest.mark.parametrize(
    ("kind", "suites"),
    [
        ("fail-allocation", SUITES),
        ("fail-replay", SUITES),
        ("fail-spill", ["test_spill.py::test_below_the_floor"]),
        ("fail-fetch", ["test_spill.py::test_below_the_floor"]),
    ],
)
def test_two_faults_in_each(kind: str, suites: list[str]) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "injection"),
            *("--inject", kind, "--faults", "2"),
            *(str(HERE / suite) for suite in suites),
        ],
        env={**os.environ, "PYTHONPATH": str(HERE), "OMP_NUM_THREADS": "1"},
        cwd=HERE.parent.parent,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
