"""`recoup run --budget least` and `knee`: a search, then the run."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from command import cli
from recoup._memory.sizes import parse_bytes

TRAINING = """
import sys
import torch
torch.manual_seed(0)
from torch import nn
net = nn.Sequential(*[m for _ in range(8) for m in (nn.Linear(64, 64), nn.Tanh())])
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(6):
    optimizer.zero_grad()
    loss = net(torch.ones(4000, 64)).square().mean()
    loss.backward()
    optimizer.step()
    print(loss.item().hex())
if "fail" in sys.argv:
    sys.exit(3)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "train.py").write_text(TRAINING, encoding="utf-8")
    return tmp_path


def run(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return cli("run", *arguments, cwd=folder)


def results(folder: Path) -> list[Path]:
    return sorted((folder / "cache" / "recoup" / "budgets").glob("*/*.json"))


def chosen(stderr: str, which: str) -> int:
    said = re.search(
        rf"^recoup run: --budget {which} is (\S+); to search again, delete \S+$", stderr, re.M
    )
    assert said is not None, stderr
    return parse_bytes(said[1])


def test_a_search_and_the_run(folder: Path) -> None:
    plain = subprocess.run(
        [sys.executable, "train.py"], cwd=folder, capture_output=True, text=True, check=True
    )
    first = run(folder, "--budget", "least", "--report", "run.json", "train.py")
    assert (first.returncode, first.stdout) == (0, plain.stdout), first.stderr
    assert "Suggested budgets have a margin" in first.stderr
    least = chosen(first.stderr, "least")
    report = json.loads((folder / "run.json").read_text())
    assert report["stats"]["memory"]["budget_bytes"] == least
    assert report["stats"]["work"]["evictions"] > 0
    # The search is not made again, for either budget.
    again = run(folder, "--budget", "least", "train.py")
    knee = run(folder, "--budget", "knee", "train.py")
    for each in (again, knee):
        assert (each.returncode, each.stdout) == (0, plain.stdout), each.stderr
        assert "Suggested budgets" not in each.stderr
    assert chosen(again.stderr, "least") == least <= chosen(knee.stderr, "knee")
    (found,) = results(folder)
    # It is made again when the program has changed, or the file is damaged.
    found.write_text("{}")
    assert "Suggested budgets" in run(folder, "--budget", "least", "train.py").stderr
    (folder / "train.py").write_text(TRAINING + "\n# changed\n", encoding="utf-8")
    assert "Suggested budgets" in run(folder, "--budget", "least", "train.py").stderr
    assert len(results(folder)) == 2


def test_another_search_reads_the_recording(folder: Path) -> None:
    (folder / "train.py").write_text(TRAINING + "\nopen('starts', 'a').write('x')\n")
    first = run(folder, "--budget", "knee", "train.py")
    assert first.returncode == 0, first.stderr
    # The recording ends after four steps, so only the run comes to the end of the program.
    assert (folder / "starts").read_text() == "x"
    (trace,) = (folder / "cache" / "recoup" / "budgets").glob("*/*.rtrace")
    other = run(folder, "--budget", "least", "--policy", "lru", "train.py")
    assert other.returncode == 0 and other.stdout == first.stdout, other.stderr
    assert "Suggested budgets" in other.stderr
    assert len(results(folder)) == 2
    # The program's own recording would print its losses on stderr.
    losses = first.stdout.splitlines()
    assert losses[0] in first.stderr and losses[0] not in other.stderr
    # A damaged recording is made again.
    trace.write_bytes(trace.read_bytes()[:100])
    again = run(folder, "--budget", "least", "--policy", "dtr", "train.py")
    assert again.returncode == 0 and losses[0] in again.stderr, again.stderr
    assert trace.stat().st_size > 100


def test_a_folder_that_cannot_be_written(folder: Path) -> None:
    (folder / "cache").write_text("a file")
    done = run(folder, "--budget", "knee", "train.py")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^recoup run: --budget knee is \S+$", done.stderr, re.M)


def test_a_search_that_fails_ends_the_command(folder: Path) -> None:
    (folder / "train.py").write_text("import sys; sys.exit(3)", encoding="utf-8")
    failed = run(folder, "--budget", "least", "train.py")
    assert failed.returncode == 3
    assert "recoup suggest: error: the program ended (exit code 3)" in failed.stderr
    assert results(folder) == []


def test_arguments_that_do_not_fit(folder: Path) -> None:
    for more, said in (
        (("--device", "cuda:0"), "--budget least is for budgets of the CPU; got --device cuda:0"),
        (("--share", "node"), "--share needs --budget as a size"),
    ):
        refused = run(folder, "--budget", "least", *more, "train.py")
        assert refused.returncode == 2 and said in refused.stderr, refused.stderr
    refused = cli("verify", "train.py", "--", "--budget", "least", cwd=folder)
    assert refused.returncode == 2
    assert os.listdir(folder) == ["train.py"]
