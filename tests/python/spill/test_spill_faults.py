"""A spill tier whose disk fails at each copy in turn, and events around its file."""

import ctypes
import mmap
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import recoup
from test_spill import file_of_the_tier

COUNT = 12
SIZE = 1 << 16  # elements
ROUNDS = 3
BUDGET = "1.5MiB"  # the state has 3 MiB
Retry = Callable[[Callable[[], object]], object]


def at_once(work: Callable[[], object]) -> object:
    return work()


def make_state() -> list[torch.Tensor]:
    return [torch.full((SIZE,), float(i)) for i in range(COUNT)]


def update(state: list[torch.Tensor], retry: Retry = at_once) -> None:
    """Retries each op that fails, which has not begun then. Some results can be replayed."""
    for step in range(ROUNDS):
        for i, each in enumerate(state):
            other = state[(i + 1 + step) % COUNT]
            made = retry(lambda other=other: other.sin())  # type: ignore[misc]
            retry(lambda each=each, made=made: each.add_(made, alpha=0.5))  # type: ignore[misc]


def digest(state: list[torch.Tensor], retry: Retry = at_once) -> list[object]:
    return [retry(lambda each=each: each.double().sum().item().hex()) for each in state]  # type: ignore[misc]


@pytest.fixture(scope="module")
def plain() -> list[object]:
    state = make_state()
    update(state)
    return digest(state)


@pytest.fixture(scope="module")
def copies(plain: list[object]) -> recoup.Stats:
    with recoup.budget(BUDGET, spill="64MiB") as run:
        state = make_state()
        update(state)
        assert digest(state) == plain
        run.set_budget("8MiB")
    assert run.stats().spills > 20 and run.stats().fetches > 20
    return run.stats()


_FULL = """
import torch, recoup
with recoup.budget("22MiB", spill="64MiB"):
    model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(8)])
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(8, 512)).sum().backward()
        optimizer.step()
    del model, optimizer
"""


def test_a_tier_that_cannot_grow_is_named_once(tmp_path: Path) -> None:
    most = 4 << 20
    done = subprocess.run(
        [sys.executable, "-c", _FULL],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)),
        capture_output=True,
        text=True,
    )
    said = f"the spill tier could not be written: [Errno 27] File too large, in {tmp_path}."
    assert done.stderr.count(said) == done.stderr.count("Errno") == 1, done.stderr


def test_a_failed_write_loses_no_value(
    plain: list[object], copies: recoup.Stats, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = 0
    for number in range(1, copies.spills + 1):
        monkeypatch.setenv("RECOUP_TEST_AIDS", f"fail-spill={number}")
        with recoup.budget(BUDGET, spill="64MiB") as run:

            def retry(work: Callable[[], object], run: recoup.Run = run) -> object:
                nonlocal refused
                try:
                    return work()
                except recoup.OutOfBudgetError as error:
                    assert "spill tier could not be written" in str(error)
                    refused += 1
                    run.set_budget("8MiB")
                    return work()

            state = [retry(lambda i=i: torch.full((SIZE,), float(i))) for i in range(COUNT)]  # type: ignore[misc]
            update(state, retry)  # type: ignore[arg-type]
            assert digest(state, retry) == plain, number  # type: ignore[arg-type]
            run.check()
            run.set_budget("16MiB")
        assert run.stats().spills < copies.spills
    assert refused > 0


def test_a_failed_read_is_an_error_and_the_next_read_is_right(
    plain: list[object], copies: recoup.Stats, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised = 0
    for number in range(1, copies.fetches + 1):
        monkeypatch.setenv("RECOUP_TEST_AIDS", f"fail-fetch={number}")
        says = f"a test aid made fetch {number} fail"

        def retry(work: Callable[[], object], says: str = says) -> object:
            nonlocal raised
            try:
                return work()
            except RuntimeError as error:
                assert says in str(error)
                raised += 1
                return work()

        try:
            with recoup.budget(BUDGET, spill="64MiB") as run:
                state = make_state()
                update(state, retry)
                assert digest(state, retry) == plain, number
                run.check()
                run.set_budget("8MiB")
        except RuntimeError as error:  # at the exit, which fetches live values
            assert says in str(error)
            assert "run.resume(budget)" in str(error.__notes__)
            raised += 1
            run.resume("8MiB")
        assert digest(state) == plain
    assert raised > copies.fetches // 2


def test_permanent_read_errors_lose_only_the_values_in_the_tier(
    plain: list[object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RECOUP_TEST_AIDS", "fail-fetch=30,persistent")
    lost, kept, done = [], [], 0

    def count(work: Callable[[], object]) -> object:
        nonlocal done
        made = work()
        done += 1
        return made

    with (
        pytest.raises(RuntimeError, match="a test aid made fetch") as left,
        recoup.budget(BUDGET, spill="64MiB") as run,
    ):
        state = make_state()
        with pytest.raises(RuntimeError, match="a test aid made fetch 30 fail"):
            update(state, count)
        for i, each in enumerate(state):
            try:
                torch.save(each, tmp_path / f"{i}.pt")
                kept.append(i)
            except RuntimeError as error:
                assert "a test aid made fetch" in str(error)
                lost.append(i)
        run.check()
        assert lost and kept
        del each
        run.set_budget("8MiB")
    assert "`del` the tensors" in str(left.value.__notes__)
    del left
    for i, each in enumerate(state):
        if not recoup.is_resident(each):
            assert i in lost or i in kept  # it was spilled again
            with pytest.raises(RuntimeError, match="Nothing is lost"):
                each.sum()
            state[i] = torch.zeros(1)
    del each
    run.resume("8MiB")
    expected = make_state()

    def so_many(work: Callable[[], object]) -> object:
        nonlocal done
        done -= 1
        if done < 0:
            raise StopIteration
        return work()

    with pytest.raises(StopIteration):
        update(expected, so_many)
    for i in kept:
        assert torch.equal(torch.load(tmp_path / f"{i}.pt"), expected[i])


def pages_in_memory(path: str) -> int:
    """The number of pages of a file in the system's page cache."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        arguments = (None, ctypes.c_size_t(size), mmap.PROT_READ, mmap.MAP_SHARED, file.fileno())
        address = ctypes.c_void_p(libc.mmap(*arguments, ctypes.c_long(0)))
        found = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
        assert libc.mincore(address, ctypes.c_size_t(size), found) == 0
        libc.munmap(address, ctypes.c_size_t(size))
    return sum(page & 1 for page in found)


def test_the_file_is_not_cached_and_its_folder_may_be_removed(
    plain: list[object], tmp_path: Path
) -> None:
    folder = tmp_path / "tier"
    folder.mkdir()
    with recoup.budget(BUDGET, spill="64MiB", spill_dir=folder) as run:
        state = make_state()
        folder.rmdir()
        update(state)
        assert digest(state) == plain
        assert run.stats().spills > 20
        file = file_of_the_tier()
        assert os.stat(file).st_size > 1 << 20
        assert pages_in_memory(file) == 0
        run.set_budget("8MiB")


KILLED = f"""
import os, signal, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import recoup, test_spill_faults as t
with recoup.budget(t.BUDGET, spill="64MiB", spill_dir=sys.argv[1]) as run:
    state = t.make_state()
    t.update(state)
    assert run.stats().spills > 20
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_leaves_no_file(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, tmp_path], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert os.listdir(tmp_path) == []


WORKERS = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import torch, recoup, test_spill_faults as t
torch.set_num_threads(1)
plain = t.make_state()
t.update(plain)
plain = t.digest(plain)
with recoup.budget(t.BUDGET, spill="64MiB") as run:
    state = t.make_state()
    children = []
    for _ in range(4):  # copies may be under way
        t.update(state)
        for i, each in enumerate(state):
            each.fill_(float(i))
        child = os.fork()
        if child == 0:
            for each in state:
                try:
                    each.add_(1)
                except RuntimeError:
                    pass
            os._exit(0)
        children.append(child)
        assert run.stats().spills > 20
    t.update(state)
    for child in children:
        assert os.WEXITSTATUS(os.waitpid(child, 0)[1]) == 0
    assert t.digest(state) == plain
    run.set_budget("8MiB")
"""


def test_workers_are_forked_while_copies_are_in_progress() -> None:
    """The workers write and read their own values; the file belongs to their parent."""
    done = subprocess.run([sys.executable, "-c", WORKERS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
