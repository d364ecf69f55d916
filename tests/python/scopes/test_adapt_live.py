"""Live budgets that follow the machine: `recoup.budget(..., adapt=True)`."""

import gc
import os
import signal
import subprocess
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import recoup
import warm_python
from made_up_machine import GIB, LeaveFree, limited, write
from recoup import gpus
from recoup._memory import resident, watcher
from recoup._memory.machine import Limit
from recoup._memory.sizes import parse_bytes
from recoup._memory.watcher import Watcher
from recoup._patching.outside import WATCHER
from resident import resident_bytes

MIB = 1 << 20
RESERVE = 32 * MIB  # of a limit of 2 GiB
WORKER = Path(__file__).with_name("limited_worker.py")


@pytest.fixture
def leave_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LeaveFree]:
    """Sets the memory that a scope may have, in a made-up cgroup of 2 GiB without other use."""
    files = limited(tmp_path, monkeypatch)
    allowed = 0

    def leave(free: int) -> None:
        nonlocal allowed
        allowed = free
        files(free)

    def lowest(self: Watcher) -> Limit:
        free = allowed + RESERVE - self._engine.committed_bytes()
        return Limit("cgroup", "made up", 2 * GIB, max(0, free))

    monkeypatch.setattr(Watcher, "_lowest", lowest)
    monkeypatch.setattr(watcher, "_MOST_AHEAD", 1 << 40)
    process = SimpleNamespace(process=lambda: resident.Process(taken=1 << 50, files=0))
    monkeypatch.setattr(watcher, "resident", process)
    yield leave
    assert WATCHER not in {thread.name for thread in threading.enumerate()}


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "the budget has not followed"
        time.sleep(0.01)


def chain() -> torch.Tensor:
    x = torch.arange(float(MIB // 4)).requires_grad_()
    y = x
    for _ in range(40):
        y = (y * 1.0001).sin()
    y.sum().backward()
    assert x.grad is not None
    return x.grad


def test_a_live_budget_follows_the_machine(leave_free: LeaveFree) -> None:
    plain = chain()
    leave_free(512 * MIB)
    with recoup.budget("64MiB", adapt=True) as run:
        assert run.stats().budget_bytes == 64 * MIB
        assert torch.equal(chain(), plain)
        assert run.stats().replays == 0
        leave_free(40 * MIB)
        until(lambda: run.stats().budget_bytes < 64 * MIB)
        small = run.stats().budget_bytes
        run.check()
        assert torch.equal(chain(), plain)
        leave_free(512 * MIB)
        until(lambda: run.stats().budget_bytes == 64 * MIB)
        assert torch.equal(chain(), plain)
        run.check()
    changes = run.budget_changes()
    assert min(change.after_bytes for change in changes) <= small
    assert changes[-1].after_bytes == 64 * MIB
    said = f"The budget followed the machine's memory: {len(changes)} changes. The lowest was "
    assert said in run.report()


def test_auto_may_grow_beyond_its_first_size(leave_free: LeaveFree) -> None:
    leave_free(1000 * MIB)
    with recoup.budget("auto", adapt=True) as run:
        first = run.stats().budget_bytes
        assert first < 1000 * MIB
        leave_free(1900 * MIB)
        until(lambda: run.stats().budget_bytes > first + 400 * MIB)


def test_a_scope_ends_although_its_budget_was_reduced(leave_free: LeaveFree) -> None:
    leave_free(512 * MIB)
    with recoup.budget("64MiB", adapt=True) as run:
        kept = [torch.full((MIB,), float(i)) * 2 for i in range(12)]
        leave_free(0)
        until(lambda: run.stats().budget_bytes < 40 * MIB)
        leave_free(512 * MIB)
    assert [int(each[0]) for each in kept] == [2 * i for i in range(12)]


def test_a_run_with_adapt_is_collected(leave_free: LeaveFree) -> None:
    leave_free(512 * MIB)
    with recoup.budget("64MiB", adapt=True) as run:
        pass
    reference = weakref.ref(run)
    del run
    gc.collect()
    assert reference() is None


def test_a_budget_of_a_gpu_cannot_adapt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "parse_device", lambda _: torch.device("cuda:0"))
    with pytest.raises(ValueError, match="are for budgets of the CPU"):
        recoup.budget("1GiB", device="cuda:0", adapt=True)


def test_an_op_that_does_not_fit_now_is_out_of_budget(leave_free: LeaveFree) -> None:
    leave_free(512 * MIB)
    with recoup.budget("64MiB", adapt=True) as run:
        leave_free(0)
        until(lambda: run.stats().budget_bytes < 20 * MIB)
        with pytest.raises(recoup.OutOfBudgetError):
            torch.full((10 * MIB,), 2.0)
        leave_free(512 * MIB)
        until(lambda: run.stats().budget_bytes == 64 * MIB)
        assert torch.full((10 * MIB,), 2.0)[7] == 2


def test_a_budget_is_reduced_while_ops_run(leave_free: LeaveFree) -> None:
    """Between two ops of a program that runs one after the other."""
    leave_free(512 * MIB)
    with recoup.budget("64MiB", adapt=True) as run:
        large = torch.ones(2 * MIB)
        leave_free(24 * MIB)
        end = time.monotonic() + 60
        while run.stats().budget_bytes > 32 * MIB:
            assert time.monotonic() < end
            assert large.mul(2).sum() == 4 * MIB
        run.check()


def test_set_budget_sets_the_largest_budget(leave_free: LeaveFree) -> None:
    leave_free(512 * MIB)
    with recoup.budget("64MiB", adapt=True) as run:
        for size in ("128MiB", "32MiB"):
            run.set_budget(size)
            time.sleep(2.5)
            assert run.stats().budget_bytes == parse_bytes(size)


@pytest.mark.serial
def test_a_spill_tier_still_imports_tensors_from_before(leave_free: LeaveFree) -> None:
    leave_free(1024 * MIB)
    model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(16)])
    made = torch.ones(4, 512)
    want = model(made).sum().item()
    with recoup.budget("8MiB", spill="256MiB", adapt=True) as run:
        assert model(made).sum().item() == want
        assert run.stats().imports > 0
        run.set_budget("64MiB")


def test_a_forked_child_ends(leave_free: LeaveFree) -> None:
    leave_free(512 * MIB)
    with recoup.budget("64MiB", adapt=True):
        child = os.fork()
        if child == 0:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0


def test_the_interpreter_ends_with_an_open_scope() -> None:
    program = "import recoup\nrecoup.budget('1MiB', adapt=True).__enter__()\nprint('ended')"
    done = subprocess.run(
        [warm_python.REAL, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr


def test_a_run_without_adapt_has_no_changes() -> None:
    with recoup.budget("1MiB") as run:
        run.set_budget("2MiB")
    assert run.budget_changes() == []


# ---- a process that others squeeze ----

# 80 activations of 8 MiB; the process itself takes about 220 MiB.
TRAIN = """
import hashlib, pathlib, sys
import torch
torch.manual_seed(0)
layers = [torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU()) for _ in range(40)]
model = torch.nn.Sequential(*layers)
batch = torch.randn(65536, 32)
optimizer = torch.optim.AdamW(model.parameters())
for step in range(8):
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
    pathlib.Path(sys.argv[1]).touch()
digest = hashlib.sha256()
for parameter in model.parameters():
    digest.update(parameter.detach().numpy().tobytes())
print(digest.hexdigest())
"""
HOG = """
import pathlib, sys, time
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.01)
taken = []
for _ in range(int(sys.argv[2])):
    taken.append(b"x" * (5 << 20))
    time.sleep(0.05)
time.sleep(600)
"""
LIMIT = 800 * MIB


def squeezed(command: list[object], folder: Path) -> tuple[int, str, str]:
    """Runs a program next to another process that takes 200 MiB after its first step.

    Both are in a made-up cgroup, and the program is killed when they exceed its limit.
    """
    started = folder / "started"
    started.unlink(missing_ok=True)
    hog = [warm_python.REAL, "-c", HOG, started, 40]
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        other = subprocess.Popen([*map(str, hog)])
        program = subprocess.Popen([*map(str, command), started], stdout=output, stderr=errors)
        current = folder / "machine/cgroup/job/memory.current"
        try:
            while program.poll() is None:
                taken = resident_bytes(program.pid) + resident_bytes(other.pid)
                if taken > LIMIT:
                    program.kill()
                if current.exists():
                    new = current.with_name("new")
                    new.write_text(str(taken))
                    new.replace(current)
                time.sleep(0.001)
        finally:
            for each in (program, other):
                each.kill()
                each.wait()
        output.seek(0)
        errors.seek(0)
        return program.returncode, output.read().decode(), errors.read().decode()


@pytest.mark.serial
def test_an_adaptive_program_survives_a_process_that_takes_memory(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    write(script, TRAIN)
    plain = subprocess.run(
        [warm_python.REAL, script, tmp_path / "x"], capture_output=True, text=True, check=True
    )

    def run(*options: str) -> list[object]:
        worker = [warm_python.REAL, WORKER, tmp_path / "machine", LIMIT, "run", "--quiet"]
        return [*worker, "--budget", "auto", *options, script]

    code, output, _ = squeezed(run(), tmp_path)
    assert (code, output) == (-signal.SIGKILL, "")
    code, output, errors = squeezed(run("--adapt"), tmp_path)
    assert (code, output, errors) == (0, plain.stdout, "")
