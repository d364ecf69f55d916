"""The repr of a run names its state, and calls in the wrong state get a clear error."""

import threading

import pytest
import torch

import recoup


def suspended() -> tuple[recoup.Run, list[torch.Tensor]]:
    base = torch.arange(float(2**18))
    made: list[torch.Tensor] = []
    with pytest.raises(recoup.OutOfBudgetError), recoup.budget("8MiB") as run:
        made = [base.mul(i) for i in range(12)]
    return run, made


def test_repr_has_state_peak_evictions_and_replays() -> None:
    with recoup.budget("16MiB", options=recoup.Options(small_result_bytes=0)) as run:
        made = torch.ones(1 << 20).add(1)
        assert recoup.evict(made)
        made.sum()
        peak = "peak 8.0 MiB of a budget of 16.0 MiB"
        assert repr(run) == f"<recoup.Run: open, {peak}, 1 eviction, 2 replays>"
    assert repr(run) == f"<recoup.Run: over, {peak}, 1 eviction, 2 replays>"


def test_repr_of_a_suspended_run() -> None:
    run, made = suspended()
    assert repr(run).startswith("<recoup.Run: suspended, peak ")
    run.resume("64MiB")
    assert repr(run).startswith("<recoup.Run: over, peak ") and len(made) == 12


def test_an_exit_without_an_entry_is_an_error() -> None:
    budget = recoup.budget("1MiB")
    with pytest.raises(RuntimeError, match="was not entered, so it cannot be left"):
        budget.__exit__(None, None, None)
    with budget as run:  # it can still be entered
        torch.ones(4)
    assert run.stats().op_count == 1


def test_a_budget_cannot_be_nested_in_itself() -> None:
    budget = recoup.budget("1MiB")
    with budget:
        with pytest.raises(RuntimeError, match="cannot be nested: leave its scope first"), budget:
            pass
    with budget as again:
        pass
    assert repr(again).startswith("<recoup.Run: over")


def test_two_threads_with_a_budget_each_are_not_called_nested() -> None:
    entered, leave = threading.Event(), threading.Event()

    def work() -> None:
        with recoup.budget("1MiB"):
            entered.set()
            leave.wait()

    thread = threading.Thread(target=work)
    thread.start()
    entered.wait()
    with pytest.raises(RuntimeError) as caught:
        recoup.budget("1MiB").__enter__()
    leave.set()
    thread.join()
    assert "another thread has entered it" in str(caught.value)
    assert "nested" not in str(caught.value)


def test_the_budget_of_a_closed_scope_cannot_be_set() -> None:
    with recoup.budget("1MiB") as run:
        pass
    with pytest.raises(
        RuntimeError,
        match=r"run\.set_budget needs an open scope.* this scope is over: open a new one",
    ):
        run.set_budget("2MiB")
    run, made = suspended()
    with pytest.raises(RuntimeError, match=r"run\.set_budget .* is suspended: run\.resume"):
        run.set_budget("2MiB")
    del made


def test_resume_of_a_scope_that_is_not_suspended_is_an_error() -> None:
    with recoup.budget("1MiB") as run:
        with pytest.raises(
            RuntimeError, match=r"this scope is open: change its budget with run\.set_budget"
        ):
            run.resume("2MiB")
    with pytest.raises(RuntimeError, match="this scope is over: there is nothing to resume"):
        run.resume("2MiB")


@pytest.mark.parametrize("name", ["evict", "is_resident", "materialize", "pin"])
def test_an_argument_that_is_not_a_tensor_is_an_error(name: str) -> None:
    function = getattr(recoup, name)
    with pytest.raises(TypeError, match=f"recoup.{name} takes a tensor; got int"):
        with function(3):  # pin raises when it is entered
            pass
