"""Two processes that train together, each in a budget of its own: same bits on each."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("distributed_worker.py")
RANKS = 2


@pytest.mark.parametrize("kind", ["ddp", "fsdp2", "fsdp2_bf16"])
def test_each_rank_trains_in_a_share_of_its_peak(kind: str, tmp_path: Path) -> None:
    ranks = [
        subprocess.Popen(
            [sys.executable, WORKER, kind, str(rank), str(RANKS), tmp_path / "ranks"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(RANKS)
    ]
    try:
        outputs = [rank.communicate(timeout=300) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()  # one that waits for another, which failed
    for rank, (lines, errors) in zip(ranks, outputs, strict=True):
        assert rank.returncode == 0, errors[-2000:]
        runs = [json.loads(line) for line in lines.splitlines()]
        assert len(runs) == 2
        assert all(run["same"] and run["within"] and run["replays"] > 0 for run in runs)
