"""The host's work for a training step on a GPU: bench/host.py in a small form.

`make test-cuda-stand-in` runs these tests. Counts do not depend on the machine, and their limits
are a little above what was counted. Plans are made while the program waits, so runs are equal.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

KERNELS = os.environ.get("CUDA_STAND_IN_KERNELS")
BENCH = Path(__file__).parents[3] / "bench" / "host.py"
DECISIONS = ("ops", "plans", "evictions", "listed", "replays", "moves", "spills", "fetches")

pytestmark = pytest.mark.skipif(KERNELS is None, reason="`make test-cuda-stand-in` runs these")


def rows(folder: Path, *arguments: str) -> dict[str, dict[str, Any]]:
    """The rows of a run in a new process, by their budget."""
    assert KERNELS is not None
    heap = Path(KERNELS).with_name("libstand_in_heap.so")
    environment = {
        **os.environ,
        "LD_PRELOAD": f"{os.environ['LD_PRELOAD']}:{heap}",
        "CUDA_STAND_IN_HOST_ONLY": "1",
        "CUDA_STAND_IN_DEVICES": "1",
        "CUDA_STAND_IN_MEMORY": "80G",
        "CUDA_STAND_IN_PINNED": "32G",
        "CUBLAS_WORKSPACE_CONFIG": ":16:8",  # else larger than these nets
    }
    path = folder / "rows.json"
    command = [sys.executable, BENCH, "--tiny", "--rounds", "1", "--planning", "wait"]
    done = subprocess.run(
        [*command, "--json", path, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(path.read_text())["rows"]
    return {f"{row['net']} {row['percent']}{row['tier']}": row for row in found}


def test_a_step_costs_the_host_a_bounded_number_of_calls(tmp_path: Path) -> None:
    nets = ("--nets", "gpt2", "resnet50", "--percents", "100", "--with-tier", "25")
    first, second = (rows(tmp_path, *nets) for _ in range(2))
    for name, row in first.items():
        assert {key: row[key] for key in DECISIONS} == {key: second[name][key] for key in DECISIONS}
        assert row["capture queries"] <= 1.1 * row["ops"] + row["waits"]
    for net in ("gpt2", "resnet50"):
        ample, tier = first[f"{net} 100"], first[f"{net} 25 + tier"]
        assert ample["plans"] == ample["evictions"] == ample["waits"] == 0
        assert ample["heap"] < 5 * ample["ops"]
        # A copy waits once for its bytes, and its value's user once for the copy.
        assert tier["evictions"] > 0
        assert tier["waits"] <= 2 * (tier["spills"] + tier["fetches"])
        assert tier["plans"] < 12 * (tier["evictions"] + tier["spills"])
    assert first["resnet50 25 + tier"]["spills"] > 0  # the plan of the other net spills nothing


def test_a_step_that_repeats_follows_a_list(tmp_path: Path) -> None:
    row = rows(tmp_path, "--nets", "llama", "--percents", "30", "--with-tier")["llama 30"]
    assert row["evictions"] > 0
    assert row["listed"] >= row["evictions"] / 2
