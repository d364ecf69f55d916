"""The device that stands for CUDA, by itself: what it computes, and that its streams run late."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import fakegpu
from fakegpu_worker import CHECKS

WORKER = Path(__file__).with_name("fakegpu_worker.py")
SEEDS_OF = {"streams": (0, 1, 2), "backward_on_a_stream": (0, 1, 2)}

pytestmark = pytest.mark.skipif(
    fakegpu.path_of_extension() is None, reason="`make test-device` was not run"
)


@pytest.mark.parametrize(
    ("check", "seed"), [(check, seed) for check in CHECKS for seed in SEEDS_OF.get(check, (0,))]
)
def test_fakegpu(check: str, seed: int) -> None:
    done = subprocess.run(
        [sys.executable, str(WORKER), check, str(seed)],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"TORCH_CPP_LOG_LEVEL": "ERROR"},
    )
    assert done.returncode == 0, done.stderr[-4000:]
