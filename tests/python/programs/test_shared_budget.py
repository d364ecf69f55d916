"""Ranks under torchrun that share one budget compute the bits of plain training."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("shared_worker.py")


@pytest.mark.parametrize("world", [2, 4])
def test_ranks_with_unequal_needs_share_a_budget(world: int, tmp_path: Path) -> None:
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = subprocess.run(
        [*launch, f"--nproc-per-node={world}", WORKER, tmp_path],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-6000:]
    for rank in range(world):
        reported = json.loads((tmp_path / f"{rank}.json").read_text())
        assert [run["program"] for run in reported] == ["ddp", "fsdp2", "tensor_parallel"]
        for run in reported:
            assert run["same"] and run["within"], run
            if rank == 0 and run["program"] != "tensor_parallel":
                assert not run["words_fit_in_an_equal_part"], run
                assert run["most"] > run["total"] / world, run
        assert sum(run["replays"] for run in reported) > 0
