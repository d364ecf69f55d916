"""The device that stands for CUDA, without recoup: its results, and that its streams run late."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import fakegpu
from fakegpu_worker import CHECKS
from forks import Server

WORKER = Path(__file__).with_name("fakegpu_worker.py")
SEEDS_OF = {"streams": (0, 1, 2), "backward_on_a_stream": (0, 1, 2)}

pytestmark = pytest.mark.skipif(
    fakegpu.path_of_extension() is None, reason="`make test-device` was not run"
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(WORKER, TORCH_CPP_LOG_LEVEL="ERROR") as server:
        yield server


@pytest.mark.parametrize(
    ("check", "seed"), [(check, seed) for check in CHECKS for seed in SEEDS_OF.get(check, (0,))]
)
def test_fakegpu(check: str, seed: int, server: Server) -> None:
    done = server.run(check, str(seed))
    assert done.returncode == 0, done.stderr[-4000:]
