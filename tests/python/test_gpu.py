"""Budgets on a GPU: the same checks on the device that stands for CUDA, and on CUDA.

RECOUP_TEST_GPU=cuda:0 runs them on a real one: see `make test-cuda`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fakegpu
from gpu_worker import CHECKS, CUDA_ONLY
from test_training_bits import PAIRS

DEVICE = os.environ.get("RECOUP_TEST_GPU", f"{fakegpu.NAME}:0")
REAL = not DEVICE.startswith(fakegpu.NAME)
PROGRAMS = Path(__file__).with_name("gpu_random_programs.py")
WORKER = Path(__file__).with_name("gpu_worker.py")
SIMPLE = [name for name in CHECKS if name != "training" and (REAL or name not in CUDA_ONLY)]
SEEDS = 4  # of programs on several streams

pytestmark = pytest.mark.skipif(
    not REAL and fakegpu.path_of_extension() is None, reason="`make test-device` was not run"
)


def run_worker(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, str(WORKER), DEVICE, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"TORCH_CPP_LOG_LEVEL": "ERROR"},
    )
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-4000:]
    if done.stdout:
        pytest.skip(done.stdout.strip())


@pytest.mark.parametrize("check", SIMPLE)
def test_gpu(check: str) -> None:
    run_worker(check)


@pytest.mark.parametrize("seed", range(1, SEEDS))
def test_streams(seed: int) -> None:
    run_worker("streams", str(seed))


@pytest.mark.parametrize(("net", "variant"), PAIRS)
def test_a_budget_changes_no_bit(net: str, variant: str) -> None:
    run_worker("training", net, variant)


@pytest.mark.skipif(REAL, reason="their numbers are compared on the host each time")
def test_random_programs() -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAMS), "--seeds", "0:60"],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"TORCH_CPP_LOG_LEVEL": "ERROR"},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == 60
    failed = [row for row in rows if "failure" in row]
    assert not failed, failed[0]
    assert sum(row["value"]["replays"] for row in rows) > 300
