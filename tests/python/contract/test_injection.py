"""Injects faults into unchanged tests: a short form of `make test-injection`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGED = "../spill/test_paged_results.py::test_results_larger_than_the_budget"
SUITES = ["test_composites.py", "../torch_compat/test_opaque_ops.py", "test_contract_versions.py"]


@pytest.mark.parametrize(
    ("kind", "suites"),
    [
        ("fail-allocation", SUITES),
        (
            "fail-allocation",
            [f"{PAGED}[in_place-None-2]", f"{PAGED}[volume-256MiB-1]"],
        ),
        ("fail-replay", SUITES),
        ("fail-spill", ["../spill/test_spill.py::test_a_training_fits_below_its_state"]),
        ("fail-fetch", ["../spill/test_spill.py::test_a_training_fits_below_its_state"]),
    ],
)
def test_suites_pass_with_two_faults_in_each_test(kind: str, suites: list[str]) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "injection"),
            *("--inject", kind, "--faults", "2"),
            *(str(TESTS / "contract" / suite) for suite in suites),
        ],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        cwd=TESTS.parents[1],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
