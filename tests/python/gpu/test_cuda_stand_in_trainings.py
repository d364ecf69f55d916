"""Typical trainings on the stand-in for CUDA: their bits in budgets are those of plain PyTorch.

`make test-cuda-stand-in` runs these: the trainings of the first hour on a GPU, in tiny sizes, each
in a new process.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forks import Server

WORKER = Path(__file__).with_name("stand_in_trainings_worker.py")
FIRST_HOUR = Path(__file__).parents[3] / "tools/gpu_first_hour"
ON_STAND_IN = "CUDA_STAND_IN_KERNELS" in os.environ
# A training without evictions gets an eighth of the device's memory.
ASKED = {"TORCH_CPP_LOG_LEVEL": "ERROR", "CUDA_STAND_IN_MEMORY": "4G"}
# The CPU has no fused attention, and Inductor compiles kernels at run time.
LACKS = {
    "attention, FLASH_ATTENTION": "the stand-in has no kernels of fused attention",
    "attention, EFFICIENT_ATTENTION": "the stand-in has no kernels of fused attention",
    "attention, CUDNN_ATTENTION": "the stand-in has no cuDNN",
    "Inductor": "the stand-in runs no kernels of Triton's",
}

pytestmark = pytest.mark.skipif(not ON_STAND_IN, reason="`make test-cuda-stand-in` runs these")


def environments() -> dict[str, dict[str, str]]:
    """The environment variables that each training needs, by its name."""
    if not ON_STAND_IN:
        return {}
    sys.path.insert(0, str(FIRST_HOUR))
    try:
        from trainings import all_trainings

        return {name: training.environment for name, training in all_trainings()}
    finally:
        sys.path.remove(str(FIRST_HOUR))


ENVIRONMENTS = environments()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(WORKER, **ASKED) as made:
        yield made


def run(name: str, server: Server) -> "subprocess.CompletedProcess[str]":
    asked = ENVIRONMENTS[name]
    if not asked:
        return server.run(name)
    return subprocess.run(
        [sys.executable, str(WORKER), name],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | ASKED | asked,
    )


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_training(name: str, server: Server) -> None:
    if name in LACKS:
        pytest.skip(LACKS[name])
    done = run(name, server)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-4000:]
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if row["bits"] == "skipped":
        pytest.skip(row["reason"])
    assert row["bits"] == "equal", row
    assert row["evictions"] > 0 and row["replays"] > 0, row
    assert row["races"] == 0 and not row["failures"], row


def test_skipped_trainings_exist() -> None:
    assert LACKS.keys() <= ENVIRONMENTS.keys()
