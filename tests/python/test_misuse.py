"""A run says what it is, and a call that does not go with its state is answered by a sentence."""

import pytest
import torch

import recoup


def suspended() -> tuple[recoup.Run, list[torch.Tensor]]:
    base = torch.arange(float(2**18))
    made: list[torch.Tensor] = []
    with pytest.raises(recoup.OutOfBudgetError), recoup.budget("8MiB") as run:
        made = [base.mul(i) for i in range(12)]
    return run, made


def test_a_run_says_its_state_its_peak_and_what_was_done() -> None:
    with recoup.budget("16MiB", small_result_bytes=0) as run:
        made = torch.ones(1 << 20).add(1)
        assert recoup.evict(made)
        made.sum()
        peak = "peak 8.0 MiB of a budget of 16.0 MiB"
        assert repr(run) == f"<recoup.Run: open, {peak}, 1 eviction, 2 replays>"
    assert repr(run) == f"<recoup.Run: over, {peak}, 1 eviction, 2 replays>"


def test_a_run_that_waits_for_its_end_says_so() -> None:
    run, made = suspended()
    assert repr(run).startswith("<recoup.Run: suspended, peak ")
    run.resume("64MiB")
    assert repr(run).startswith("<recoup.Run: over, peak ") and len(made) == 12


def test_an_exit_without_an_entry() -> None:
    budget = recoup.budget("1MiB")
    with pytest.raises(RuntimeError, match="is not in force, so its scope cannot be left"):
        budget.__exit__(None, None, None)
    with budget as run:  # it can be entered all the same
        torch.ones(4)
    assert run.stats().op_count == 1


def test_a_budget_is_entered_once_at_a_time() -> None:
    budget = recoup.budget("1MiB")
    with budget:
        with pytest.raises(RuntimeError, match="cannot be nested: leave its scope first"), budget:
            pass
    with budget as again:
        pass
    assert repr(again).startswith("<recoup.Run: over")


def test_the_budget_of_a_scope_that_is_not_open() -> None:
    with recoup.budget("1MiB") as run:
        pass
    with pytest.raises(
        RuntimeError, match=r"run\.set_budget .* this one is over: open another one"
    ):
        run.set_budget("2MiB")
    run, made = suspended()
    with pytest.raises(RuntimeError, match=r"run\.set_budget .* is suspended: run\.resume"):
        run.set_budget("2MiB")
    del made


def test_an_exit_that_there_is_not() -> None:
    with recoup.budget("1MiB") as run:
        with pytest.raises(RuntimeError, match=r"this scope is open: run\.set_budget"):
            run.resume("2MiB")
    with pytest.raises(RuntimeError, match="this scope is over: there is nothing to do"):
        run.resume("2MiB")


@pytest.mark.parametrize("name", ["evict", "is_resident", "materialize", "pin"])
def test_what_is_not_a_tensor(name: str) -> None:
    function = getattr(recoup, name)
    with pytest.raises(TypeError, match=f"recoup.{name} takes a tensor; got int"):
        with function(3):  # of a pin: when it is entered
            pass
