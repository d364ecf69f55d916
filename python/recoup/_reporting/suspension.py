"""Errors and notes about the state of a scope: open, suspended because its exit failed, or over."""

from typing import Literal

from recoup import _C
from recoup._memory.sizes import format_bytes
from recoup.errors import OutOfBudgetError

State = Literal["not entered", "open", "suspended", "over"]

_RECOMMENDED = {
    "not entered": "enter it first",
    "suspended": "run.resume(budget) completes its exit",
    "over": "open a new one with recoup.budget(...)",
}


def state_of(engine: _C.Engine, *, was_left: bool) -> State:
    """The scope's state; was_left: whether it has been open and left."""
    if engine.entered():
        return "open"
    if engine.suspended():
        return "suspended"
    return "over" if was_left else "not entered"


def require_open(engine: _C.Engine, name: str, *, was_left: bool) -> None:
    """Raises RuntimeError if the scope is not open; `name` is the method that was called."""
    state = state_of(engine, was_left=was_left)
    if state != "open":
        raise RuntimeError(
            f"run.{name} needs an open scope, but this scope is {state}: {_RECOMMENDED[state]}"
        )


def require_suspended(engine: _C.Engine, *, was_left: bool) -> None:
    """Raises RuntimeError if there is no exit to complete."""
    state = state_of(engine, was_left=was_left)
    if state == "open":
        raise RuntimeError(
            "run.resume completes a failed exit, but this scope is open: change its budget with "
            "run.set_budget(budget)"
        )
    if state != "suspended":
        raise RuntimeError(
            f"run.resume completes a failed exit, but this scope is {state}: there is nothing to "
            "resume"
        )


OF_A_FAILURE = (
    "The scope is suspended. Using a tensor that is still evicted or spilled raises an error. "
    "First `del` the tensors that cannot be restored; then run.resume(budget), with the same or "
    "a larger budget, restores the others."
)
"""A note on an error, other than OutOfBudgetError, that interrupted an exit."""


def of_two_errors(leaving: BaseException) -> str:
    """A note on the body's error if the exit failed as well."""
    said = f"{leaving}".removeprefix("recoup: ").removesuffix(".")
    notes = " ".join(getattr(leaving, "__notes__", []))
    return f"recoup: leaving the scope failed too: {said}. {notes}".rstrip()


def of_no_room(error: OutOfBudgetError) -> str:
    """A note on the error of an exit that did not fit into the budget."""
    missing = error.least_bytes - error.budget_bytes
    much = f"at least {format_bytes(missing)} of tensors" if missing > 0 else "tensors"
    return (
        "The scope is suspended. No tensor is lost while the scope's run object exists: keep "
        "`run` of `with ... as run`, or `error.run`. Until run.resume, using an evicted tensor "
        f"raises an error.\nWithout a larger budget, free {much} before the scope ends: `del` "
        "results that are not needed after it (a loss that was not detached keeps all "
        "activations of its backward pass), save results to files, or set gradients to None."
    )
