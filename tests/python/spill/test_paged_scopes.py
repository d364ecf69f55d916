"""The window of paged memory when scopes follow each other, and forks while kernels run on it."""

import os
from pathlib import Path

import pytest
import torch

import recoup
from test_paged_results import MIB, run_script

SMALL, LARGE = (recoup.Options(page_window=size) for size in ("16MiB", "64MiB"))


def paged(rows: int) -> torch.Tensor:
    x = torch.ones(rows)
    return torch.outer(x, x)


def resident_bytes() -> int:
    """Bytes of paged memory that are resident: of the file in memory, which has no other name."""
    for name in Path("/proc/self/fd").iterdir():
        try:
            if "recoup-paged" in os.readlink(name):
                return os.stat(name).st_blocks * 512
        except FileNotFoundError:  # that of the listing
            continue
    raise AssertionError("no memory is paged")


def test_a_scope_that_goes_on_has_its_own_window() -> None:
    """A later scope had a larger one, which this budget was never charged for."""
    kept = []
    with pytest.raises(recoup.OutOfBudgetError), recoup.budget("24MiB", options=SMALL) as run:
        large = paged(4096)
        kept += [large[i : i + 64].clone() for i in range(0, 4096, 64)]
    with recoup.budget("200MiB", options=LARGE):
        larger = torch.ones(1 << 28, dtype=torch.uint8)
        assert larger.max() == 1 and resident_bytes() > 32 * MIB
        del larger
    run.resume("100MiB")
    assert resident_bytes() <= 16 * MIB
    assert all(bool((each == 1).all()) for each in kept)


def test_another_window_takes_the_place_of_the_first(tmp_path: Path) -> None:
    """Both together do not fit. A simulation charges as much, at the same time."""
    path = tmp_path / "run.rtrace"

    def run_after_another(budget: int) -> recoup.Run:
        with recoup.budget("80MiB", options=LARGE):
            earlier = paged(5000)
        with recoup.budget(budget, options=SMALL, trace=path) as run:
            earlier[:4].sum()
            paged(4600).sum()
        return run

    live = run_after_another(72 * MIB).stats()
    assert live.peak_bytes <= 72 * MIB
    for budget in (72 * MIB, 1 << 30):
        run_after_another(budget)
        made = recoup.Trace.read(path).simulate(
            72 * MIB, recoup.SimulationOptions(policy="recoup", **vars(SMALL))
        )
        assert made.status == "ok", made.reason
        assert made.stats.peak_bytes == live.peak_bytes
        assert made.stats.paged_allocations == live.paged_allocations > 0


@pytest.mark.parametrize("window", [None, "16MiB", "32MiB"])
def test_a_simulation_knows_the_window_of_an_earlier_scope(
    window: str | None, tmp_path: Path
) -> None:
    with recoup.budget("36MiB", options=SMALL):
        earlier = paged(4096)
    path = tmp_path / "run.rtrace"
    options = recoup.Options(page_window=window)
    with recoup.budget("40MiB", options=options, trace=path) as run:
        (earlier[:4] + 1).sum()
    made = recoup.Trace.read(path).simulate(
        40 * MIB, recoup.SimulationOptions(policy="recoup", **vars(options))
    )
    assert made.stats.peak_bytes == run.stats().peak_bytes > 16 * MIB


def test_an_op_that_must_not_run_twice_is_simulated_so(tmp_path: Path) -> None:
    """Its empty `out` tensors have no storage that a trace could name."""
    options = recoup.Options(page_window="16MiB", cost_model="bytes")
    path = tmp_path / "run.rtrace"
    with recoup.budget(61 * MIB, options=options, trace=path) as run:
        torch.empty(62 * MIB, dtype=torch.uint8)  # the window is charged from here on
        x = torch.ones(20 * MIB // 8, dtype=torch.float64)
        mantissa, exponent = torch.empty(0, dtype=torch.float64), torch.empty(0, dtype=torch.int32)
        torch.frexp(x, out=(mantissa, exponent))
        assert bool((mantissa == 0.5).all()) and bool((exponent == 1).all())
    made = recoup.Trace.read(path).simulate(
        61 * MIB, recoup.SimulationOptions(policy="recoup", **vars(options))
    )
    assert made.stats.paged_allocations == run.stats().paged_allocations > 0
    assert made.stats.paged_bytes == run.stats().paged_bytes


def test_workspace_is_recorded_alike(tmp_path: Path) -> None:
    """Whether it was paged or not."""
    path = tmp_path / "run.rtrace"
    sizes = []
    for budget in ("40MiB", "1GiB"):
        torch.manual_seed(0)
        with recoup.budget(budget, options=SMALL, trace=path) as run:
            torch.kthvalue(torch.randn(2048, 2048), 5, 1)
        sizes.append([op.workspace_bytes for op in recoup.Trace.read(path).ops()])
        assert (run.stats().paged_allocations > 0) == (budget == "40MiB")
    assert sizes[0] == sizes[1]
    assert max(sizes[0]) > 8 * MIB


# A thread draws random numbers into paged memory: PyTorch's generator is locked in the meantime,
# and a fork needs that lock, and paged memory's.
FORKS = """
import os, threading, time, torch, recoup
torch.set_num_threads(1)
over = threading.Event()

def forks():
    while not over.is_set():
        if (child := os.fork()) == 0:
            os._exit(0)
        os.waitpid(child, 0)
        time.sleep(0.002)

with recoup.budget("24MiB", options=recoup.Options(page_window="16MiB")):
    torch.ones(4096, 4096).sum()
    thread = threading.Thread(target=forks)
    thread.start()
    for _ in range(6):
        torch.rand(4096, 4096).sum()
    over.set()
    thread.join()
print("right")
"""


def test_forks_while_a_kernel_draws_into_paged_memory() -> None:
    done = run_script(FORKS)
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr


# A grandchild frees what its grandparent paged.
GRANDCHILD = """
import os, torch, recoup
torch.set_num_threads(1)
options = recoup.Options(page_window="16MiB")

def page():
    with recoup.budget("24MiB", options=options):
        torch.ones(3072, 3072).sum()

with recoup.budget("36MiB", options=options):
    large = torch.ones(4096, 4096)
if os.fork() == 0:
    page()
    if os.fork() == 0:
        page()
        del large
        os._exit(5)
    os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
assert os.waitstatus_to_exitcode(os.wait()[1]) == 5
print("right")
"""


def test_a_grandchild_frees_nothing_of_its_grandparent() -> None:
    done = run_script(GRANDCHILD)
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr
