"""Processes that train together, each in its own budget, compute the bits of plain training."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from distributed_programs import PROGRAMS

WORKER = Path(__file__).with_name("distributed_worker.py")
# One process group runs all programs, because starting one takes seconds.
ON_TWO = [name for name in PROGRAMS if name != "tensor_and_data_parallel"]
ON_FOUR = ["ddp", "sequence_parallel", "tensor_and_data_parallel", "one_forward_one_backward"]


@pytest.mark.parametrize(("world", "names"), [(2, ON_TWO), (4, ON_FOUR)])
def test_each_rank_trains_in_a_share_of_its_peak(
    world: int, names: list[str], tmp_path: Path
) -> None:
    ranks = [
        subprocess.Popen(
            [sys.executable, WORKER, str(rank), str(world), tmp_path / "ranks", *names],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]
    try:
        outputs = [rank.communicate(timeout=900) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()  # ends a rank that waits for a failed one
    spills = 0
    failed = [
        f"rank {number} ended with {rank.returncode}:\n{errors[-4000:]}"
        for number, (rank, (_, errors)) in enumerate(zip(ranks, outputs, strict=True))
        if rank.returncode != 0
    ]
    assert not failed, "\n".join(failed)
    for lines, _ in outputs:
        runs = [json.loads(line) for line in lines.splitlines()]
        assert [(run["program"], run["tier"]) for run in runs] == [
            (name, tier) for name in names for tier in (False, True)
        ]
        assert not [run for run in runs if not run["same"] or not run["within"]]
        assert not [run for run in runs if not run["replays"]]
        spills += sum(run["spills"] for run in runs if run["tier"])
    assert spills > 0
