"""Repeatable ops give the same bits, whatever uninitialized memory contains.

One operator: `python tests/python/script.py repeatable_worker --only linalg.lstsq`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import recoup
from recoup import _C

WORKER = Path(__file__).with_name("repeatable_worker.py")


def sweep(*arguments: str) -> tuple[dict[str, str], dict[str, int]]:
    """The arguments of each op that differs, and the number of comparisons of each op."""
    worker = subprocess.run(
        [sys.executable, str(WORKER), *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"TORCH_CPP_LOG_LEVEL": "ERROR"},
    )
    found: dict[str, str] = {}
    counts: dict[str, int] = {}
    last = ""
    for line in worker.stdout.splitlines():
        row = json.loads(line)
        last = row.get("start", "")
        found |= row.get("found", {})
        for name, count in row.get("counts", {}).items():
            counts[name] = counts.get(name, 0) + count
    assert worker.returncode == 0, f"{last}: {worker.stderr[-1500:]}"
    return found, counts


def test_some_operators_give_the_same_bits_twice() -> None:
    found, counts = sweep("--samples", "2", "--one-in", "16", "--seed", "1")
    assert not found, found
    assert len(counts) > 30, counts


@pytest.mark.slow
def test_every_operator_gives_the_same_bits_twice() -> None:
    found, counts = sweep()
    assert not found, found
    assert len(counts) > 500, counts


def test_the_sweep_finds_an_op_that_is_not_repeatable() -> None:
    # The worker has to trust it, but its result is uninitialized memory.
    found, _ = sweep("--only", "new_empty", "--trust", "aten::new_empty")
    assert "aten.new_empty.default" in found
    assert not _C.replay_traits("aten::new_empty", "")["repeatable"]


def test_least_squares_are_non_recomputable() -> None:
    with recoup.budget("64MiB"):
        a, b = torch.randn(200, 200), torch.randn(200, 200)
        for _ in range(5):
            x = torch.linalg.lstsq(a, b).solution
            y = x.clone()
            assert not recoup.evict(x)
            assert torch.equal(x, y)
