"""`recoup run --budget auto` trains a program for which plain PyTorch is killed."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import warm_python
from made_up_machine import write
from recoup._memory.machine import REAL
from resident import resident_bytes

MIB = 1 << 20
LIMIT = 600 * MIB
WORKER = Path(__file__).with_name("limited_worker.py")

# 80 activations of 8 MiB are 640 MiB; the process itself takes about 220 MiB.
TRAIN = """
import hashlib
import torch
torch.manual_seed(0)
layers = [torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU()) for _ in range(40)]
model = torch.nn.Sequential(*layers)
batch = torch.randn(65536, 32)
optimizer = torch.optim.AdamW(model.parameters())
for step in range(2):
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
digest = hashlib.sha256()
for parameter in model.parameters():
    digest.update(parameter.detach().numpy().tobytes())
print(digest.hexdigest())
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    write(tmp_path / "train.py", TRAIN)
    return tmp_path / "train.py"


def watched(command: Sequence[object], limit_bytes: int | None) -> tuple[int, str, str, int]:
    """Exit code, output, errors and peak of a process that is killed if it exceeds the limit."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen([*map(str, command)], stdout=output, stderr=errors)
        peak = 0
        try:
            while process.poll() is None:
                peak = max(peak, resident_bytes(process.pid))
                if limit_bytes is not None and peak > limit_bytes:
                    process.kill()
                time.sleep(0.001)
        finally:
            process.kill()
            process.wait()
        output.seek(0)
        errors.seek(0)
        return process.returncode, output.read().decode(), errors.read().decode(), peak


def test_auto_trains_a_program_for_which_plain_pytorch_is_killed(
    tmp_path: Path, script: Path
) -> None:
    python = warm_python.REAL
    code, plain, _, _ = watched([python, script], None)
    assert code == 0 and len(plain) == 65
    code, output, _, _ = watched([python, script], LIMIT)
    assert (code, output) == (-signal.SIGKILL, "")
    run = [WORKER, tmp_path / "machine", LIMIT, "run", "--quiet", "--budget", "auto", script]
    code, output, errors, peak = watched([python, *run], LIMIT)
    assert (code, output, errors) == (0, plain, ""), f"{peak / MIB:.0f} MiB at most"
    # The budget is the available memory, not the smallest one that suffices.
    assert peak > LIMIT * 0.6


# ---- limits that the kernel enforces ----


def delegated() -> Path | None:
    """A cgroup of version 2 above this process in which it may make child cgroups with a limit."""
    lines = (REAL.proc / "self/cgroup").read_text().splitlines()
    path = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), None)
    if path is None or ".." in path:
        return None
    folder = REAL.cgroup / path
    while folder.is_relative_to(REAL.cgroup):
        control = folder / "cgroup.subtree_control"
        may_move = os.access(folder, os.W_OK) and os.access(folder / "cgroup.procs", os.W_OK)
        if may_move and control.is_file() and "memory" in control.read_text().split():
            return folder
        folder = folder.parent
    return None


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A new cgroup with the limit."""
    above = delegated()
    if above is None:
        pytest.skip("no cgroup of version 2 with memory is delegated to this process")
    made = Path(tempfile.mkdtemp(prefix="recoup-test-", dir=above))
    try:
        (made / "memory.max").write_text(str(LIMIT))
        if (made / "memory.swap.max").exists():
            (made / "memory.swap.max").write_text("0")
        yield made
    except OSError as error:
        pytest.skip(f"a cgroup in {above} takes no limit: {error}")
    finally:
        made.rmdir()


def test_the_kernel_kills_plain_pytorch_and_auto_trains(script: Path, cgroup: Path) -> None:
    # The shell enters the cgroup before it starts Python, so that all memory is counted there.
    enter = ["sh", "-c", 'echo 0 > "$0/cgroup.procs" && exec "$@"', cgroup, warm_python.REAL]
    probe = watched([*enter, "-c", "print(1)"], None)
    if probe[0] != 0:
        pytest.skip(f"a process may not move to {cgroup}: {probe[2]}")
    code, plain, _, _ = watched([warm_python.REAL, script], None)
    assert code == 0
    code, output, _, _ = watched([*enter, script], None)
    assert (code, output) == (-signal.SIGKILL, "")
    run = ["-m", "recoup", "run", "--quiet", "--budget", "auto", script]
    assert watched([*enter, *run], None)[:3] == (0, plain, "")
