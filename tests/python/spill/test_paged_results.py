"""Results that do not fit in the budget: their bits, the budget, and what they cannot do."""

import copy
import gc
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import recoup
from conftest import bits_equal

MIB = 1 << 20
WINDOW = "16MiB"
PAGED = recoup.Options(page_window=WINDOW)


def distances() -> list[torch.Tensor]:
    """A kernel of 36 MiB, and its row sums."""
    torch.manual_seed(0)
    x = torch.randn(3072, 16)
    return [(-torch.cdist(x, x).square()).exp().sum(1)]


def cross_entropy() -> list[torch.Tensor]:
    """Logits of 36 MiB: two products, softmax by rows, and a backward with transposed reads."""
    torch.manual_seed(0)
    states = torch.randn(1536, 32, requires_grad=True)
    words = torch.randn(6144, 32, requires_grad=True)
    loss = F.cross_entropy(states @ words.t(), torch.randint(6144, (1536,)))
    loss.backward()
    assert states.grad is not None and words.grad is not None
    return [loss.detach(), states.grad, words.grad]


def volume() -> list[torch.Tensor]:
    """Convolutions and normalization of a volume whose features take 31 MiB."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv3d(1, 16, 3, padding=1),
        torch.nn.BatchNorm3d(16),
        torch.nn.ReLU(inplace=True),
        torch.nn.MaxPool3d(4),
    )
    with torch.no_grad():
        return [net(torch.randn(1, 1, 80, 80, 80))]


def in_place() -> list[torch.Tensor]:
    """Writes to paged results, to views of them, and through other layouts."""
    torch.manual_seed(0)
    x = torch.randn(3072)
    a = torch.outer(x, x)
    a.mul_(0.5).t().add_(x)
    a[::7, 3:9] = 2
    b = torch.where(a > 0.1, a, a.flip(0))
    b.clamp_(max=3.0).triu_()
    a.copy_(b)
    halves = b.bfloat16().view(torch.int16)
    return [a[:, :64].sum(0), b.amax(1), a.t()[5].clone(), halves.amax(1)]


PROGRAMS: dict[str, Callable[[], list[torch.Tensor]]] = {
    each.__name__: each for each in (distances, cross_entropy, volume, in_place)
}


@pytest.mark.usefixtures("usual_threads")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("spill", [None, "256MiB"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_larger_than_the_budget(name: str, spill: str | None, threads: int) -> None:
    torch.set_num_threads(threads)
    plain = PROGRAMS[name]()
    with recoup.budget("24MiB", spill=spill, options=PAGED) as run:
        made = PROGRAMS[name]()
        run.check()
    assert bits_equal(made, plain)
    stats, paged = run.stats(), run.paged_results()
    assert stats.peak_bytes <= stats.budget_bytes
    assert paged is not None and paged.most_bytes > stats.budget_bytes
    assert paged.read_bytes > 0 and paged.written_bytes > 0 and paged.disk_ns > 0
    assert "were paged: at most" in run.report()


@pytest.mark.parametrize("lasts", ["", ",persistent"])
@pytest.mark.parametrize("number", [1, 2, 3, 5])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_disk_that_is_full_for_a_result(
    name: str, number: int, lasts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = PROGRAMS[name]()
    monkeypatch.setenv("RECOUP_TEST_AIDS", f"fail-page={number}{lasts}")
    with recoup.budget("24MiB", options=PAGED) as run:
        try:
            assert bits_equal(PROGRAMS[name](), plain)  # fewer results are paged
        except recoup.OutOfBudgetError as error:
            assert "No space left on device" in str(error), str(error)
        run.check()
        gc.collect()
        paged = run.paged_results()
        assert paged is None or paged.now_bytes == 0


@pytest.mark.parametrize("name", PROGRAMS)
def test_without_a_window_they_are_out_of_budget(name: str) -> None:
    with recoup.budget("24MiB") as run, pytest.raises(recoup.OutOfBudgetError):
        PROGRAMS[name]()
    assert run.paged_results() is None
    assert "were paged" not in run.report()


def test_no_result_is_paged_that_fits() -> None:
    with recoup.budget("200MiB", options=PAGED) as run:
        distances()
    assert run.paged_results() is None
    assert run.stats().external_bytes == 0


def test_a_paged_result_is_a_source_of_replays() -> None:
    """Values computed from it are evicted and replayed, also after it has changed."""
    torch.manual_seed(0)
    x = torch.randn(4096)
    rows = torch.outer(x, x)[::64]
    with recoup.budget("36MiB", options=PAGED) as run:
        large = torch.outer(x, x)
        picked = large[::64].clone()
        recoup.evict(picked)
        first = picked.mul(1)
        recoup.evict(picked)
        large.add_(1)
        assert recoup.is_resident(picked)  # it could not be replayed from the changed content
        second = picked.mul(1)
        run.check()
        assert run.stats().replays > 0
    assert bits_equal([first, second], [rows, rows])


def test_a_value_whose_workspace_was_paged_is_not_replayed() -> None:
    torch.manual_seed(0)
    x = torch.randn(2048, 2048)
    plain = torch.kthvalue(x, 5, 1)[0]
    with recoup.budget("40MiB", options=PAGED) as run:
        x = torch.randn(1)  # the large one from before is in no scope
        torch.manual_seed(0)
        value = torch.kthvalue(torch.randn(2048, 2048), 5, 1)[0]
        assert run.paged_results() is not None
        assert not recoup.evict(value)
        again = value * 1
    assert bits_equal([value, again], [plain, plain])


def test_paged_results_outlive_the_scope() -> None:
    torch.manual_seed(0)
    x = torch.randn(4096)
    plain = torch.outer(x, x)
    with recoup.budget("36MiB", options=PAGED):
        large = torch.outer(x, x)
    assert bits_equal(large, plain)
    assert bits_equal(copy.deepcopy(large), plain)
    assert bits_equal(pickle.loads(pickle.dumps(large)), plain)
    assert large.numpy()[5, 7] == plain[5, 7]
    with recoup.budget("36MiB", options=PAGED):
        twice = large * 2
        large.mul_(2)
    assert bits_equal([twice, large], [plain * 2, plain * 2])
    with recoup.budget("24MiB") as run:  # the window is charged
        part = large[:4] + 1
        assert run.stats().external_bytes == 16 * MIB
    with recoup.budget("8MiB"), pytest.raises(recoup.OutOfBudgetError):
        large[:4].add(1)
    assert bits_equal(part, plain[:4] * 2 + 1)


def test_system_calls_fail_and_write_nothing_else(tmp_path: Path) -> None:
    with recoup.budget("36MiB", options=PAGED):
        large = torch.ones(4096, 4096)
    with pytest.raises((OSError, RuntimeError)):
        large.numpy().tofile(tmp_path / "large.bin")
    with pytest.raises((OSError, RuntimeError)):
        torch.save(large, tmp_path / "large.pt")
    torch.save(large[:64].clone(), tmp_path / "part.pt")
    assert bits_equal(torch.load(tmp_path / "part.pt"), large[:64])


FORKED = """
import os, recoup, torch
with recoup.budget("36MiB", options=recoup.Options(page_window="16MiB")):
    large = torch.ones(4096, 4096)
if (child := os.fork()) == 0:
    large[0, 0] = 2
    os._exit(0)
status = os.waitpid(child, 0)[1]
assert os.WIFSIGNALED(status), status
assert large.sum().item() == 4096 * 4096
print("right")
"""

FREED = """
import os, recoup, torch
with recoup.budget("36MiB", options=recoup.Options(page_window="16MiB")):
    large = torch.ones(4096, 4096)
    torch.ones(4096, 4096).sum()
if (child := os.fork()) == 0:
    del large
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert large.sum().item() == 4096 * 4096
print("right")
"""

FULL = """
import resource, recoup, torch
resource.setrlimit(resource.RLIMIT_FSIZE, (8 << 20, resource.RLIM_INFINITY))
with recoup.budget("36MiB", options=recoup.Options(page_window="16MiB")) as run:
    try:
        torch.ones(4096, 4096)
    except recoup.OutOfBudgetError as error:
        assert "paged memory" in str(error), error
        resource.setrlimit(resource.RLIMIT_FSIZE, (-1, resource.RLIM_INFINITY))
        assert torch.ones(4096, 4096).sum().item() == 4096 * 4096
        run.check()
        print("right")
"""

FORKS = """
import os, recoup, torch
torch.set_num_threads(1)
options = recoup.Options(page_window="16MiB")

def twos():
    return torch.full((3072, 3072), 2.0).sum().item() == 2 * 3072 * 3072

def in_child(work):
    pid = os.fork()
    if pid == 0:
        os._exit(3 if work() else 4)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def in_scope():
    with recoup.budget("24MiB", options=options) as run:
        return twos() and run.paged_results().most_bytes == 36 << 20

with recoup.budget("24MiB", options=options) as run:
    sevens = torch.full((3072, 3072), 7.0)
    assert in_child(twos) == 3
assert in_child(in_scope) == 3
assert bool((sevens == 7).all())
print("right")
"""


def test_a_forked_child_pages_its_own_results() -> None:
    done = run_script(FORKS)
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr


FAULTHANDLER = """
import faulthandler, recoup, torch
options = recoup.Options(page_window="16MiB")
with recoup.budget("36MiB", options=options):
    large = torch.ones(4096, 4096)
    faulthandler.enable()
    more = torch.ones(4096, 4096)
    assert large.sum().item() == more.sum().item() == 4096 * 4096
print("right")
faulthandler._sigsegv()
"""


def run_script(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env=os.environ,
        check=False,
        timeout=300,
    )


def test_a_forked_child_ends_with_a_message() -> None:
    done = run_script(FORKED)
    assert done.returncode == 0, done.stderr
    assert "right" in done.stdout and "a forked child has no access to it" in done.stderr


def test_a_forked_child_frees_nothing_of_its_parent() -> None:
    done = run_script(FREED)
    assert done.returncode == 0 and "right" in done.stdout, done.stderr


def test_a_file_that_cannot_be_made_is_out_of_budget() -> None:
    done = run_script(FULL)
    assert done.returncode == 0 and "right" in done.stdout, done.stderr


def test_other_faults_are_reported_as_before() -> None:
    done = run_script(FAULTHANDLER)
    assert "right" in done.stdout, done.stderr
    assert done.returncode < 0 and "Fatal Python error: Segmentation fault" in done.stderr


def test_wrong_windows() -> None:
    with pytest.raises(ValueError, match="page_window must be from 16MiB to 4GiB; got '1MiB'"):
        recoup.budget("1GiB", options=recoup.Options(page_window="1MiB"))
    with pytest.raises(recoup.OutOfBudgetError), recoup.budget("8MiB", options=PAGED):
        torch.ones(4096, 4096)  # the window does not fit
