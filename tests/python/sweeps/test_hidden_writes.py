"""An op writes only arguments that its schema or recoup's table of hidden writes marks."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import recoup
from hidden_writes_worker import Watch

WORKER = Path(__file__).parent / "hidden_writes_worker.py"


def _swept(step: int, most: int) -> Any:
    done = subprocess.run(
        [sys.executable, str(WORKER), str(step), str(most)],
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(("step", "most"), [(9, 2), pytest.param(1, 10**6, marks=pytest.mark.slow)])
def test_no_op_has_an_unknown_hidden_write(step: int, most: int) -> None:
    swept = _swept(step, most)
    assert swept["calls"] > 100
    assert swept["found"] == []


def test_a_hidden_write_is_found() -> None:
    watch = Watch(set())
    x, mean, var = torch.randn(8, 4), torch.zeros(4), torch.ones(4)
    with watch:
        torch.batch_norm_update_stats(x, mean, var, 0.1)
    name = "aten::batch_norm_update_stats"
    assert watch.found == {(name, 1), (name, 2)}


def test_update_stats_is_a_write() -> None:
    def program(evict: bool) -> tuple[list[float], list[float]]:
        torch.manual_seed(0)
        x, mean, var = torch.randn(64, 1024), torch.zeros(1024), torch.ones(1024)
        made = mean * 1 + 1
        torch.batch_norm_update_stats(x, mean, var, 0.1)
        if evict:
            recoup.evict(mean)
            recoup.evict(made)
        return mean.clone().tolist(), made.tolist()

    plain = program(False)
    with recoup.budget("64MiB"):
        assert program(True) == plain
