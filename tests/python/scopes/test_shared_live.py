"""Processes that share a budget: workers, killed processes, and one that waits for another."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import recoup

MIB = 1 << 20
GROUP = f"group:test-{os.getpid()}"

# Holds parts until its input ends.
OTHER = """
import sys, torch, recoup
with recoup.budget("64MiB", share=sys.argv[1]) as run:
    kept = [torch.ones(1 << 20).add_(1) for _ in range(int(sys.argv[2]))]
    if sys.argv[3] == "pinned":
        pins = [recoup.pin(each) for each in kept]
        for pin in pins:
            pin.__enter__()
    print(run.stats().budget_bytes, flush=True)
    sys.stdin.readline()
    print(all(bool((each == 2).all()) for each in kept), flush=True)
"""


@pytest.fixture
def others() -> Iterator[list[subprocess.Popen[str]]]:
    made: list[subprocess.Popen[str]] = []
    yield made
    for each in made:
        each.kill()
        each.communicate()


def start(count: int, kind: str) -> subprocess.Popen[str]:
    """A process that shares the budget, and has `count` tensors of 4 MiB."""
    made = subprocess.Popen(
        [sys.executable, "-c", OTHER, GROUP, str(count), kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert made.stdout is not None and int(made.stdout.readline()) >= 4 * MIB * count
    return made


def test_another_process_gives_what_an_op_lacks(others: list[subprocess.Popen[str]]) -> None:
    others.append(start(15, "evictable"))
    with recoup.budget("64MiB", share=GROUP) as run:
        x = torch.zeros(10 * MIB)  # 40 MiB
        assert int(x.sum()) == 0
        shared = run.shared_budget()
        assert shared is not None and shared.waits > 0
        assert sum(part.part_bytes for part in shared.parts) <= 64 * MIB
        assert len(shared.parts) == 2
        del x
        # The other process gets its tensors back, with equal bits.
        assert others[0].communicate("\n", timeout=60)[0] == "True\n"


def test_an_op_fails_if_the_others_cannot_give(others: list[subprocess.Popen[str]]) -> None:
    others.append(start(12, "pinned"))
    with recoup.budget("64MiB", share=GROUP) as run:
        with pytest.raises(recoup.OutOfBudgetError, match=r"of it \(processes: 1\)"):
            torch.zeros(10 * MIB)
        assert float(torch.zeros(MIB).sum()) == 0  # 4 MiB do fit
        run.check()


def test_the_part_of_a_killed_process_is_free(others: list[subprocess.Popen[str]]) -> None:
    others.append(start(15, "pinned"))
    with recoup.budget("64MiB", share=GROUP) as run:
        others[0].send_signal(signal.SIGKILL)
        assert int(torch.zeros(15 * MIB).sum()) == 0  # 60 MiB
        shared = run.shared_budget()
        assert shared is not None and len(shared.parts) == 1


class Numbers(torch.utils.data.Dataset[torch.Tensor]):
    def __init__(self) -> None:
        self.kept: list[bytes] = []

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> torch.Tensor:
        if not self.kept:
            self.kept.append(bytes(bytearray(os.urandom(1)) * (8 * MIB)))
        time.sleep(0.1)
        return torch.full((4,), index)


def test_workers_are_charged() -> None:
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=2, num_workers=2)
    most = 0
    with recoup.budget("256MiB", share=GROUP) as run:
        total = 0
        for batch in loader:
            total += int(batch.sum())
            shared = run.shared_budget()
            assert shared is not None
            most = max(most, shared.parts[0].worker_bytes)
        assert total == 4 * sum(range(40))
    assert most > 16 * MIB


def test_the_last_process_removes_the_file() -> None:
    def files() -> list[Path]:
        return [*Path("/dev/shm").glob(f"recoup-*{GROUP.removeprefix('group:')}*")]

    with recoup.budget("64MiB", share=GROUP):
        assert len(files()) == 1
    assert files() == []


def test_the_command_line_shares(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\nprint(int((torch.ones(1 << 20) * 2).sum()))\n")
    report = tmp_path / "report.json"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "recoup", "run", "--budget", "64MiB", "--share", GROUP),
            *("--report", report, script),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and done.stdout == f"{2 << 20}\n", done.stderr
    assert "The budget of 64.0 MiB was shared with other processes." in done.stderr
    data = json.loads(report.read_text())
    assert data["shared_budget"]["total_bytes"] == data["settings"]["budget"] == 64 * MIB
    assert data["stats"]["memory"]["peak_bytes"] <= data["shared_budget"]["most_bytes"]
