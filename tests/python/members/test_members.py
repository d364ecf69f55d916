"""PyTorch functions that are not ops: each was reviewed, and is called on evicted tensors."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from member_calls import OWNERS, wrong
from members import MEMBERS, SKIPPED
from patched import rows_of_scopes
from recoup._patching import entry_points
from torch_versions import read_lines

FOLDER = Path(__file__).parent
NOT_CALLED = "not called"


def reviewed() -> dict[str, str]:
    """Reviewed names, with a note for members that the sweep does not call."""
    lines = read_lines(FOLDER / "reviewed_members.txt")
    if torch.version.cuda is not None:
        of_cuda = read_lines(FOLDER / "reviewed_members_cuda.txt")
        lines.extend(f"{name} {NOT_CALLED}" for name in of_cuda)
    return {name: note for name, _, note in (line.partition(" ") for line in lines)}


def test_every_member_is_reviewed() -> None:
    """A new member may read bytes without an op, expose their address, or allocate bytes.

    If it does, add it to python/recoup/_patching/entry_points.py. In both cases add its name to
    reviewed_members.txt.
    """
    wrapped = {id(getattr(row.owner, row.name, None)) for row in rows_of_scopes()}
    names = {str(member) for member in MEMBERS if id(member.find()) not in wrapped}
    new = sorted(names - reviewed().keys())
    assert not new, f"not looked at yet: {', '.join(new)}"
    gone = sorted(reviewed().keys() - {str(member) for member in MEMBERS})
    assert not gone, f"in reviewed_members.txt, and no more in PyTorch: {', '.join(gone)}"
    assert SKIPPED.keys() <= {member.name for member in MEMBERS}


def test_every_member_works_on_evicted_tensors() -> None:
    done = subprocess.run(
        [sys.executable, str(FOLDER / "members_worker.py")],
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert not [
        text for row in rows for text in (row["member"], *row["failures"]) if row["failures"]
    ]
    not_called = {row["member"] for row in rows if row["called"] == 0}
    expected = {name for name, note in reviewed().items() if note == NOT_CALLED}
    assert not_called <= expected
    assert len(rows) - len(not_called) > 500


def test_the_sweep_finds_an_unwrapped_member(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def sweep(name: str) -> Any:
        return wrong(OWNERS["Tensor"], name, "()", lambda _: None)

    monkeypatch.chdir(tmp_path)
    names = ("numpy", "data_ptr")
    assert [sweep(name) for name in names] == [[], []]
    rest = [row for row in entry_points.PATCHES.replacements if row.name not in names]
    monkeypatch.setattr(entry_points.PATCHES, "replacements", rest)
    assert all(sweep(name) for name in names)
