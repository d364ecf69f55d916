"""The exit of a scope succeeds if all live values fit, whatever memory replays need."""

import re
import resource
import subprocess
import sys

import pytest
import torch

import recoup
from recoup._memory.sizes import parse_bytes

BUDGET = 19_294_016  # 70 % of the peak: the third step does not fit


def train() -> list[torch.Tensor]:
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        *[m for _ in range(6) for m in (torch.nn.Linear(384, 384), torch.nn.GELU())]
    )
    optimizer = torch.optim.Adam(net.parameters(), amsgrad=True)
    for _ in range(3):
        net(torch.randn(512, 384)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [parameter.detach() for parameter in net.parameters()]


def test_an_exit_after_an_error_succeeds_if_all_live_values_fit() -> None:
    with pytest.raises(recoup.OutOfBudgetError) as caught, recoup.budget(BUDGET) as run:
        train()
    error = caught.value
    assert not hasattr(error, "__notes__")  # notes of a failed exit
    assert error.run is None
    stats = run.stats()
    assert stats.spills > 0  # to a file that the exit opened
    assert stats.peak_bytes <= BUDGET
    traceback = error.__traceback__
    while traceback is not None:  # the tensors of the frames are resident
        for value in list(traceback.tb_frame.f_locals.values()):
            if isinstance(value, torch.Tensor):
                assert value.isfinite().all()
        traceback = traceback.tb_next


def test_a_scope_is_suspended_if_no_file_can_be_written() -> None:
    done = subprocess.run(
        [sys.executable, __file__], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "leaving the scope failed too" in done.stdout
    assert "the file of a spill tier could not be created" in done.stdout
    assert "Next: run.resume(" in done.stdout
    assert "finished" in done.stdout


def train_with_noise(budget: int, kept: list[object]) -> recoup.Run:
    """Twelve layers whose weights get noise of generators of their own, trained with Adam."""
    torch.manual_seed(0)
    generators = [torch.Generator().manual_seed(i) for i in range(12)]
    with recoup.budget(budget) as run:
        kept.append(run)
        weights = [torch.nn.Parameter(torch.randn(192, 192) / 14) for _ in range(12)]
        kept.append(weights)
        optimizer = torch.optim.Adam(weights, 1e-3)
        x = torch.randn(128, 192)
        for _ in range(4):
            y = x
            for weight, generator in zip(weights, generators, strict=True):
                y = torch.tanh(y @ (weight + 0.01 * torch.randn(192, 192, generator=generator)))
            optimizer.zero_grad()
            y.square().mean().backward()
            optimizer.step()
    return run


@pytest.mark.parametrize("percent", [70, 55, 40])
def test_the_advice_after_a_failed_exit_works_and_is_near_the_least(percent: int) -> None:
    peak = train_with_noise(2**30, []).stats().peak_bytes
    kept: list[object] = []
    with pytest.raises(recoup.OutOfBudgetError) as caught:
        train_with_noise(peak * percent // 100, kept)
    error = caught.value
    if error.run is None:
        return  # the body did not fit, but the exit did
    assert kept[0] is error.run
    said = re.search(r'run\.resume\("(.*?)"\)', f"{error} {getattr(error, '__notes__', [])}")
    assert said is not None
    advised = parse_bytes(said[1])
    assert advised <= 1.5 * peak, f"{advised:,} of {peak:,}"
    error.run.resume(advised)
    assert error.run.stats().peak_bytes <= advised


@pytest.mark.parametrize("percent", [75, 72, 70, 65, 50])
def test_no_least_budget_is_named_below_a_failed_one(percent: int) -> None:
    budget = 27_562_880 * percent // 100
    try:
        with recoup.budget(budget):
            train()
    except recoup.OutOfBudgetError as error:
        assert error.least_bytes == 0 or error.least_bytes > error.budget_bytes
        assert error.enough_bytes >= error.next_bytes > error.budget_bytes
        assert ("lower bound" in str(error)) == (error.least_bytes > 0)


if __name__ == "__main__":
    train()  # the first call makes PyTorch choose a directory for temporary files
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    try:
        with recoup.budget(BUDGET):
            train()
    except recoup.OutOfBudgetError as error:
        print(*error.__notes__)
        assert error.run is not None
        error.run.resume("1GiB")
        print("finished")
