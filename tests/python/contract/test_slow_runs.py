"""Runs whose replays take many times as long as their ops: a warning, then an error."""

import warnings

import pytest
import torch
from torch import Tensor

import recoup

SIZE = 700


def expensive() -> Tensor:
    return torch.ones(SIZE, SIZE) @ torch.ones(SIZE, SIZE)


def thrash(value: Tensor, reads: int) -> None:
    """Reads a value that is evicted before each read."""
    for _ in range(reads):
        assert recoup.evict(value)
        value.sum()


def reads_of(seconds: float, run: recoup.Run) -> int:
    """A number of reads whose replays take at least this long."""
    stats = run.stats()
    return round(1e9 * seconds / (stats.op_ns / stats.op_count)) + 1


def test_a_slow_run_is_warned_of_and_then_stopped() -> None:
    wanted = expensive().sum()
    with recoup.budget("64MiB") as run:
        value = expensive()
        with (
            pytest.warns(UserWarning, match="replays take most of the time") as warned,
            pytest.raises(recoup.OutOfBudgetError) as caught,
        ):
            thrash(value, reads_of(100, run))
        assert len(warned) == 1
        said = str(warned[0].message)
        assert "in the budget of 64.0 MiB" in said
        assert "Beyond 20 times OutOfBudgetError is raised" in said
        error = caught.value
        assert "takes more than 20 times as long as its ops alone (max_slowdown)" in str(error)
        assert error.budget_bytes < error.next_bytes <= error.enough_bytes
        stats = run.stats()
        assert stats.replay_cost_ns > 1e10
        # The program goes on: only later replays count.
        assert torch.equal(value.sum(), wanted)
        run.check()


def test_the_bound_can_be_removed() -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with recoup.budget("64MiB", options=recoup.Options(max_slowdown=0)) as run:
            value = expensive()
            thrash(value, reads_of(15, run))
            stats = run.stats()
            assert stats.replay_cost_ns > 20 * stats.op_ns
    said = [str(each.message) for each in warned if "most of the time" in str(each.message)]
    assert len(said) == 1
    assert "OutOfBudgetError is raised" not in said[0]


def test_a_larger_budget_starts_the_count_anew() -> None:
    with recoup.budget("64MiB") as run, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value = expensive()
        with pytest.raises(recoup.OutOfBudgetError, match="max_slowdown"):
            thrash(value, reads_of(100, run))
        replayed = run.stats().replay_cost_ns
        run.set_budget("80MiB")
        with pytest.raises(recoup.OutOfBudgetError, match="max_slowdown"):
            thrash(value, reads_of(100, run))
        assert run.stats().replay_cost_ns > replayed + 1e10
