"""Two processes under torchrun, each with a budget of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import compare
import recoup

RANK = Path(__file__).with_name("rank.py")
NAMES = {"ddp": "DDP", "fsdp2": "FSDP2", "trainer": "Trainer, DDP, TrainerBudget"}


@pytest.mark.parametrize("kind", NAMES)
def test_each_rank_trains_as_without(kind: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    run = subprocess.run(
        [*command, RANK, kind, tmp_path], capture_output=True, text=True, timeout=600
    )
    assert run.returncode == 0, run.stderr[-6000:]
    for rank in range(2):
        report = json.loads((tmp_path / f"{rank}.json").read_text())
        stats = recoup.Stats(**report["stats"])
        compare.ROWS.append((f"{NAMES[kind]}, rank {rank}", stats, report["peak_bytes"]))
