"""An interrupt may come between any two instructions of Python at the entry or exit of a scope."""

import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
import torch
from torch.optim import optimizer

import recoup
from patched import rows_of_scopes


class Interrupt(BaseException):
    """An exception that no code catches by its name."""


class RaiseAt:
    """Raises at the k-th line or instruction of Python, including calls."""

    def __init__(self, k: int, kind: type[BaseException]) -> None:
        self.left = k
        self.kind = kind

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        frame.f_trace_opcodes = True
        if event in ("call", "line", "opcode"):
            self.left -= 1
            if self.left == 0:
                sys.settrace(None)
                raise self.kind
        return self


def state_of_torch() -> list[object]:
    missing = object
    return [
        *(vars(row.owner).get(row.name, missing) for row in rows_of_scopes()),
        torch._C._dispatch_tls_is_dispatch_key_included(torch._C._dispatch_key_parse("Fake")),
        dict(optimizer._global_optimizer_post_hooks),
        recoup._C.active(),
    ]


# Every place, or one of 131.
STRIDES = pytest.mark.parametrize("stride", [pytest.param(1, marks=pytest.mark.slow), 131])


def until_it_passes(act: Callable[[RaiseAt], bool], stride: int) -> int:
    """Runs `act` with an interrupt at each chosen place; returns the number of places."""
    for k in range(1, 100_000, stride):
        trace = RaiseAt(k, Interrupt if k % 2 else KeyboardInterrupt)
        if not act(trace):
            return k - 1
    raise AssertionError("it never ends")


@STRIDES
def test_interrupts_at_the_entry(stride: int) -> None:
    before = state_of_torch()

    def act(trace: RaiseAt) -> bool:
        budget = recoup.budget("64MiB", policy="sqrt-n")
        sys.settrace(trace)
        try:
            budget.__enter__()
        except (Interrupt, KeyboardInterrupt):
            assert state_of_torch() == before
            return True
        finally:
            sys.settrace(None)
        budget.__exit__(None, None, None)
        assert state_of_torch() == before
        return False

    assert until_it_passes(act, stride) > 100


@STRIDES
@pytest.mark.parametrize("fits", [True, False])
def test_interrupts_at_the_exit(fits: bool, stride: int) -> None:
    before = state_of_torch()
    base = torch.arange(float(2**16))
    want = [base.mul(i) for i in range(8)]

    def act(trace: RaiseAt) -> bool:
        budget = recoup.budget("8MiB" if fits else "1MiB", policy="sqrt-n")
        run = budget.__enter__()
        got = [base.mul(i) for i in range(8)]
        caught = None
        sys.settrace(trace)
        try:
            budget.__exit__(None, None, None)
        except BaseException as error:
            caught = error
        finally:
            sys.settrace(None)
        assert not recoup._C.active()
        if not fits:
            # Only the patches of a suspended scope may be left.
            run.resume("8MiB")
        assert state_of_torch() == before
        assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
        return isinstance(caught, Interrupt | KeyboardInterrupt)

    assert until_it_passes(act, stride) > (40 if fits else 60)


@STRIDES
def test_interrupts_in_resume(stride: int) -> None:
    before = state_of_torch()
    base = torch.arange(float(2**16))

    def act(trace: RaiseAt) -> bool:
        with pytest.raises(recoup.OutOfBudgetError), recoup.budget("1MiB") as run:
            got = [base.mul(i) for i in range(8)]
        caught = None
        sys.settrace(trace)
        try:
            run.resume("8MiB")
        except (Interrupt, KeyboardInterrupt) as error:
            caught = error
        finally:
            sys.settrace(None)
        if run._engine.suspended():
            run.resume("16MiB")
        assert state_of_torch() == before
        assert got[3][2].item() == 6
        return caught is not None

    assert until_it_passes(act, stride) > 60


@pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals are of the main one"
)
def test_interrupts_by_signals() -> None:
    """Signals arrive at arbitrary times, as with Ctrl-C."""
    before = state_of_torch()

    armed: list[bool] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if armed:
            armed.clear()
            raise Interrupt

    old = signal.signal(signal.SIGALRM, handle)
    try:
        hits = 0
        for k in range(200):
            try:
                armed.append(True)
                signal.setitimer(signal.ITIMER_REAL, 1e-5 + k * 1e-5)
                with recoup.budget("64MiB"):
                    torch.ones(4096).mul(2)
                armed.clear()
            except Interrupt:
                hits += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert state_of_torch() == before
    finally:
        signal.signal(signal.SIGALRM, old)
    assert hits > 0
