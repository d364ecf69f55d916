"""Budgets on a GPU: the same checks on the device that stands for CUDA, and on CUDA.

RECOUP_TEST_GPU=cuda:0 runs them on a real GPU: see `make test-cuda`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

import fakegpu
from forks import Server
from gpu_worker import CHECKS, CUDA_ONLY, EXPANDABLE, EXPANDABLE_SEGMENTS
from train import PAIRS

DEVICE = os.environ.get("RECOUP_TEST_GPU", f"{fakegpu.NAME}:0")
REAL = not DEVICE.startswith(fakegpu.NAME)
ON_STAND_IN = "CUDA_STAND_IN_KERNELS" in os.environ  # CUDA without a GPU
PROGRAMS = Path(__file__).with_name("gpu_random_programs.py")
WORKER = Path(__file__).with_name("gpu_worker.py")
SIMPLE = [name for name in CHECKS if name != "training" and (REAL or name not in CUDA_ONLY)]
SEEDS = 4  # programs on several streams
TIERS = (0, 1 << 16, 1 << 20)  # bytes of a spill tier for random programs

pytestmark = pytest.mark.skipif(
    not REAL and fakegpu.path_of_extension() is None, reason="`make test-device` was not run"
)


Run = Callable[..., "subprocess.CompletedProcess[str]"]


def fresh(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, str(WORKER), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"TORCH_CPP_LOG_LEVEL": "ERROR"} | environment,
    )


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Runs each check in a new process; on a real GPU the process is not forked."""
    if REAL and not ON_STAND_IN:
        yield fresh
    else:
        with Server(WORKER, TORCH_CPP_LOG_LEVEL="ERROR") as server:
            yield server.run


def run_check(run: Run, *arguments: str) -> None:
    done = run(DEVICE, *arguments)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-4000:]
    if done.stdout:
        pytest.skip(done.stdout.strip())


@pytest.mark.parametrize("check", SIMPLE)
def test_gpu(check: str, run: Run) -> None:
    run_check(run, check)


@pytest.mark.parametrize("check", EXPANDABLE)
def test_checks_pass_with_expandable_segments(check: str) -> None:
    """With these, PyTorch's allocator reports less about its memory."""
    asked = {"FAKEGPU_ALLOCATOR": "expandable"}
    if REAL:
        asked = EXPANDABLE_SEGMENTS
    run_check(partial(fresh, **asked), check)


@pytest.mark.parametrize("seed", range(1, SEEDS))
def test_streams(seed: int, run: Run) -> None:
    run_check(run, "streams", str(seed))


@pytest.mark.parametrize(("net", "variant"), PAIRS)
def test_a_budget_changes_no_bit(net: str, variant: str, run: Run) -> None:
    run_check(run, "training", net, variant)


def run_random_programs(seeds: range, spill: int) -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAMS), "--seeds", f"{seeds.start}:{seeds.stop}"],
        capture_output=True,
        text=True,
        timeout=1000,
        env=os.environ | {"TORCH_CPP_LOG_LEVEL": "ERROR", "RECOUP_TEST_SPILL": str(spill)},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == len(seeds)
    failed = [row for row in rows if "failure" in row]
    assert not failed, failed[0]
    assert sum(row["value"]["replays"] for row in rows) > (0 if spill else 5 * len(seeds))
    assert (sum(row["value"]["fetches"] for row in rows) > 5 * len(seeds)) == (spill > 0)


@pytest.mark.skipif(REAL, reason="their numbers are compared on the host each time")
@pytest.mark.parametrize("spill", TIERS)
def test_random_programs(spill: int) -> None:
    run_random_programs(range(20), spill)


@pytest.mark.slow
@pytest.mark.skipif(REAL, reason="their numbers are compared on the host each time")
@pytest.mark.parametrize("spill", TIERS)
def test_more_random_programs(spill: int) -> None:
    run_random_programs(range(20, 220), spill)
