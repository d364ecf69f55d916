"""The exit of a scope: it succeeds where all that lives fits, whatever replays need meanwhile."""

import resource
import subprocess
import sys

import pytest
import torch

import recoup

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


def test_a_scope_is_left_after_an_error_where_all_that_lives_fits() -> None:
    with pytest.raises(recoup.OutOfBudgetError) as caught, recoup.budget(BUDGET) as run:
        train()
    error = caught.value
    assert not hasattr(error, "__notes__")  # of an exit that failed
    assert error.run is None
    stats = run.stats()
    assert stats.spills > 0  # to a file that was lent
    assert stats.peak_bytes <= BUDGET
    traceback = error.__traceback__
    while traceback is not None:  # the tensors of the frames have their bytes
        for value in list(traceback.tb_frame.f_locals.values()):
            if isinstance(value, torch.Tensor):
                assert value.isfinite().all()
        traceback = traceback.tb_next


def test_it_is_suspended_where_no_file_can_be_written() -> None:
    done = subprocess.run(
        [sys.executable, __file__], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "leaving the scope failed too" in done.stdout
    assert "no file for a spill tier could be made" in done.stdout
    assert "Next: run.resume(" in done.stdout
    assert "finished" in done.stdout


@pytest.mark.parametrize("percent", [75, 72, 70, 65, 50])
def test_no_least_budget_is_named_below_one_that_failed(percent: int) -> None:
    budget = 27_562_880 * percent // 100
    try:
        with recoup.budget(budget):
            train()
    except recoup.OutOfBudgetError as error:
        assert error.least_bytes == 0 or error.least_bytes > error.budget_bytes
        assert error.enough_bytes >= error.likely_bytes > error.budget_bytes
        assert ("least budget" in str(error)) == (error.least_bytes > 0)


if __name__ == "__main__":
    train()  # PyTorch looks for a directory for temporary files the first time
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    try:
        with recoup.budget(BUDGET):
            train()
    except recoup.OutOfBudgetError as error:
        print(*error.__notes__)
        assert error.run is not None
        error.run.resume("1GiB")
        print("finished")
