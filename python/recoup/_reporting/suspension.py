"""What is said of a scope by its state: open, suspended because its exit failed, or over."""

from typing import Literal

from recoup import _C
from recoup._memory.sizes import format_bytes
from recoup.errors import OutOfBudgetError

State = Literal["not entered", "open", "suspended", "over"]

_RECOMMENDED = {
    "not entered": "enter it first",
    "suspended": "run.resume(budget) completes its exit",
    "over": "open another one with recoup.budget(...)",
}


def state_of(engine: _C.Budget, *, was_left: bool) -> State:
    """That of the scope; was_left: it has been open."""
    if engine.entered():
        return "open"
    if engine.suspended():
        return "suspended"
    return "over" if was_left else "not entered"


def require_open(engine: _C.Budget, *, was_left: bool) -> None:
    """Raises RuntimeError when the scope is not open."""
    state = state_of(engine, was_left=was_left)
    if state != "open":
        raise RuntimeError(
            f"run.set_budget changes the budget of an open scope, and this one is {state}: "
            f"{_RECOMMENDED[state]}"
        )


def require_suspended(engine: _C.Budget, *, was_left: bool) -> None:
    """Raises RuntimeError when there is no exit to complete."""
    state = state_of(engine, was_left=was_left)
    if state == "open":
        raise RuntimeError(
            "run.resume completes an exit that failed, and this scope is open: "
            "run.set_budget(budget) gives it more memory"
        )
    if state != "suspended":
        raise RuntimeError(
            f"run.resume completes an exit that failed, and this scope is {state}: there is "
            "nothing to do"
        )


OF_A_FAILURE = (
    "The scope is suspended. What could be brought back is there. A tensor that is evicted or "
    "spilled raises an error when it is touched, until run.resume(budget), with the same budget or "
    "a larger one, brings it back. Before that, `del` what is lost."
)
"""A note on an error, other than OutOfBudgetError, that ended an exit."""


def of_two_errors(leaving: BaseException) -> str:
    """A note on the error of the body, when the exit failed too."""
    said = f"{leaving}".removeprefix("recoup: ").removesuffix(".")
    notes = " ".join(getattr(leaving, "__notes__", []))
    return f"recoup: leaving the scope failed too: {said}. {notes}".rstrip()


def of_no_room(error: OutOfBudgetError) -> str:
    """A note on an exit that did not fit."""
    missing = error.least_bytes - error.budget_bytes
    much = f"at least {format_bytes(missing)} of tensors" if missing > 0 else "tensors"
    return (
        "The scope is suspended. Nothing is lost while its run is kept: `with ... as run` gives "
        "it, and `error.run` has it. Until run.resume, an evicted tensor raises an error when it "
        f"is touched.\nWithout a larger budget, let go of {much} before the scope ends: `del` "
        "results that are not needed after it (a loss that was not detached keeps all activations "
        "of its backward pass), save to files what is only to be stored, or set gradients to None."
    )
