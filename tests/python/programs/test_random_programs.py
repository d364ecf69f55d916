"""Random programs under random options, compared with plain PyTorch; see random_programs.py.

A longer run: `RECOUP_FUZZ_SEEDS=1000:9000 pytest -m slow FILE`, where FILE is this file.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from random_programs import COUNTS

WORKER = Path(__file__).with_name("random_programs.py")
LINES = 100
CHUNKS = ["0:30", "30:60"]


def run_seeds(seeds: str) -> list[dict[str, Any]]:
    command = [sys.executable, str(WORKER), "--seeds", seeds, "--lines", str(LINES)]
    worker = subprocess.run(command, capture_output=True, text=True, check=False)
    rows = [json.loads(line) for line in worker.stdout.splitlines()]
    assert worker.returncode == 0, f"after {len(rows)} seeds: {worker.stderr[-3000:]}"
    return rows


def assert_all_right(rows: list[dict[str, Any]]) -> None:
    failures = [row for row in rows if "failure" in row]
    reported = [
        "\n".join(
            [
                f"seed {row['seed']}: {row['failure']}: {row['text'][:600]}",
                f"options {row['options']}",
                *(f"    {line}" for line in row["program"]),
            ]
        )
        for row in failures[:5]
    ]
    seeds = [row["seed"] for row in failures]
    assert not failures, f"{len(failures)} of {len(rows)} programs fail, seeds {seeds}\n" + (
        "\n\n".join(reported)
    )


@pytest.mark.parametrize("seeds", CHUNKS)
def test_random_programs(seeds: str) -> None:
    rows = run_seeds(seeds)
    assert_all_right(rows)
    first, last = map(int, seeds.split(":"))
    assert len(rows) == last - first
    totals = {name: sum(row["value"][name] for row in rows) for name in (*COUNTS, "paged_bytes")}
    # The full run has far more than 10,000 replays; each chunk must have its part.
    assert totals["op_count"] > 10_000 // len(CHUNKS)
    # Few of these programs have a spill tier.
    assert all(total for name, total in totals.items() if name != "fetches"), totals
    assert totals["replays"] > 10 * len(rows), totals


@pytest.mark.slow
def test_more_random_programs() -> None:
    assert_all_right(run_seeds(os.environ.get("RECOUP_FUZZ_SEEDS", "60:3000")))
