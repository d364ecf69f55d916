"""Errors for bad input and for failures."""

import contextlib
import gc
import itertools
import pickle
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import recoup
from conftest import bits_equal
from recoup._memory.sizes import format_bytes
from recoup.bench.flat_options import split
from recoup.errors import add_note


@pytest.mark.parametrize("size", [0, -1, 1.5, "4 parsecs", "1000000TB", "0MB"])
def test_bad_budget(size: Any) -> None:
    with pytest.raises(ValueError, match=r"^budget .*must be"):
        recoup.budget(size)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policy": "mru"}, r"policy 'mru' is not one of .*dtr.*; did you mean lru\\?"),
        ({"policy": "lru", "kinetic": True}, r"kinetic needs a policy .*: planned, .*; got 'lru'"),
        ({"replay_order": "any"}, "replay_order must be one of memory, recursive"),
        ({"cost_model": "guess"}, "cost_model must be one of measured, bytes"),
        ({"in_place": "move"}, "in_place must be one of share, copy"),
        ({"placement": "worst-fit"}, "placement must be one of best-fit, two-ended"),
        ({"move_ns_per_byte": 0.0}, "move_ns_per_byte must be a number from 0.001"),
        ({"move_ns_per_byte": float("nan")}, "move_ns_per_byte must be a number from 0.001"),
        ({"seed": -1}, "seed must be a whole number from 0 to"),
        ({"seed": 2**64}, "seed must be a whole number from 0 to"),
        ({"max_replay_ratio": -1.0}, "max_replay_ratio must be a number above 0"),
        ({"max_replay_ratio": float("nan")}, "max_replay_ratio must be a number above 0"),
        ({"block_size": 0}, "block_size .* must be"),
        ({"block_size": "1 block"}, "block_size .* must be"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        recoup.budget("64MiB", **split(options))


def test_nested_scopes() -> None:
    with recoup.budget("64MiB"):
        with pytest.raises(RuntimeError, match="cannot be nested"), recoup.budget("64MiB"):
            pass
        # The outer scope is unchanged.
        assert recoup._C.active()
        assert "data_ptr" in vars(torch.Tensor)
        assert torch.ones(3).sum().item() == 3


@pytest.mark.parametrize("name", ["", "op", "::op", "ns::"])
def test_allow_replay_requires_the_name_of_an_op(name: str) -> None:
    with pytest.raises(ValueError, match="namespace::op"):
        recoup.allow_replay(name)


def test_out_of_budget_error_is_an_out_of_memory_error() -> None:
    assert issubclass(recoup.OutOfBudgetError, torch.OutOfMemoryError)
    error = recoup.OutOfBudgetError("report")
    assert str(error).startswith("report ")
    assert (error.op, error.enough_bytes) == ("", 0)


def test_budget_too_small_for_an_op() -> None:
    with recoup.budget("1MiB") as run:
        kept = torch.arange(1024.0).mul(2)
        with pytest.raises(recoup.OutOfBudgetError) as caught:
            torch.ones(2**20)
        error = caught.value
        assert "ones" in error.op or "empty" in error.op or "fill" in error.op
        assert error.asked_bytes == 4 * 2**20
        assert error.budget_bytes == 2**20
        assert error.enough_bytes >= error.asked_bytes
        # The program can continue.
        assert kept.sum().item() == 1023 * 1024
        run.check()


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit])
def test_exceptions_of_the_body_are_passed_on(kind: type[BaseException]) -> None:
    error = kind("mine")
    with pytest.raises(kind) as caught, recoup.budget("64MiB"):
        value = torch.arange(4096.0).mul(2)
        recoup.evict(value)
        raise error
    assert caught.value is error
    assert recoup.is_resident(value)
    assert value[1].item() == 2


def test_an_exit_that_does_not_fit_loses_no_value() -> None:
    base = torch.arange(float(2**18))
    want = [base.mul(i) for i in range(12)]
    with pytest.raises(recoup.OutOfBudgetError) as caught:
        with recoup.budget("8MiB") as run:
            got = [base.mul(i) for i in range(12)]
    # Suspended: access to an evicted tensor raises, also `is_shared`, which would end the process.
    assert not recoup._C.active()
    for touch in (torch.sum, torch.Tensor.is_shared, lambda value: value.tolist()):
        with pytest.raises(RuntimeError, match="recoup"):
            for value in got:
                touch(value)
    assert caught.value.enough_bytes > 8 * 2**20
    with pytest.raises(recoup.OutOfBudgetError):
        run.resume("9MiB")
    run.check()
    run.resume("64MiB")
    assert not recoup._C.active()
    assert bits_equal(got, want)


def test_an_evicted_tensor_on_a_thread_outside_the_scope() -> None:
    touches = {
        "sum": torch.sum,
        "tolist": lambda value: value.tolist(),
        "data_ptr": lambda value: value.data_ptr(),
        "is_shared": torch.Tensor.is_shared,
    }
    seen: dict[str, str] = {}

    def touch(value: torch.Tensor) -> None:
        recoup._C.carry(False)
        for name, function in touches.items():
            try:
                function(value)
            except RuntimeError as error:
                seen[name] = str(error)

    with recoup.budget("64MiB") as run:
        value = torch.arange(4096.0).mul(2)
        assert recoup.evict(value)
        thread = threading.Thread(target=touch, args=[value])
        thread.start()
        thread.join()
        run.check()
    assert seen.keys() == touches.keys()
    assert all("recoup.materialize" in message for message in seen.values()), seen


# ---- the scope around a failing engine, with a fake engine ----


class FakeEngine:
    """An engine whose scope cannot be left until its budget grows."""

    def __init__(self, options: recoup._C.Options, device: str) -> None:
        self.budget_bytes: int = options.as_dict()["budget_bytes"]
        self.left = False
        self.is_entered = self.is_suspended = False

    def enter(self) -> None:
        self.is_entered = True

    def entered(self) -> bool:
        return self.is_entered

    def suspended(self) -> bool:
        return self.is_suspended

    def leave(self) -> None:
        self.is_entered = False
        self.is_suspended = self.budget_bytes < 2**30
        if self.is_suspended:
            error = recoup.OutOfBudgetError("exit does not fit")
            error.enough_bytes = 2**30
            error.budget_bytes = self.budget_bytes
            raise error
        self.left = True

    def stats(self) -> dict[str, int]:
        return {"budget_bytes": self.budget_bytes}

    def set_budget(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes

    def pinned(self) -> list[dict[str, Any]]:
        return [
            {"bytes": 7, "by": "non-recomputable", "op": "aten::ones", "why": "small", "line": ""}
        ]


@pytest.fixture
def fake_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recoup._C.Engine", FakeEngine)


def notes(error: BaseException) -> str:
    return "".join(getattr(error, "__notes__", []))


@pytest.mark.usefixtures("fake_engine")
def test_a_failed_exit_names_resume() -> None:
    with pytest.raises(recoup.OutOfBudgetError) as caught:
        with recoup.budget("64MiB") as run:
            pass
    if hasattr(caught.value, "add_note"):
        assert "No tensor is lost while the scope's run object exists" in notes(caught.value)
        assert "Without a larger budget" in notes(caught.value)
    # Values may still be evicted, so the entry points stay wrapped.
    assert "data_ptr" in vars(torch.Tensor)
    with pytest.raises(recoup.OutOfBudgetError):
        run.resume("65MiB")
    assert "data_ptr" in vars(torch.Tensor)
    run.resume("1GiB")
    assert "data_ptr" not in vars(torch.Tensor)
    assert run._engine.left
    [row] = run.pinned()
    assert (row.bytes, row.op, row.why) == (7, "aten::ones", "small")


@pytest.mark.usefixtures("fake_engine")
@pytest.mark.filterwarnings("ignore:recoup")
def test_a_failed_exit_does_not_hide_the_error_of_the_body() -> None:
    with pytest.raises(ValueError, match="mine") as caught:
        with recoup.budget("64MiB") as run:
            raise ValueError("mine")
    if hasattr(caught.value, "add_note"):
        assert "leaving the scope failed too: exit does not fit" in notes(caught.value)
    run.resume("1GiB")


@pytest.mark.usefixtures("fake_engine")
def test_resume_is_refused_after_a_successful_exit() -> None:
    with recoup.budget("1GiB") as run:
        pass
    with pytest.raises(RuntimeError, match="this scope is over"):
        run.resume("1GiB")


def test_resume_in_an_open_scope_is_refused() -> None:
    with recoup.budget("1MiB") as run:
        with pytest.raises(
            RuntimeError, match=r"this scope is open: change its budget with run\.set_budget"
        ):
            run.resume("50MiB")
        assert recoup._C.active()
        with pytest.raises(recoup.OutOfBudgetError):
            torch.ones(1 << 20)


def test_messages_of_a_suspended_scope() -> None:
    base = torch.arange(float(2**18))
    with pytest.raises(recoup.OutOfBudgetError) as caught:
        with recoup.budget("8MiB") as run:
            got = [base.mul(i) for i in range(12)]
    if hasattr(caught.value, "add_note"):
        missing = caught.value.least_bytes - caught.value.budget_bytes
        assert 0 < missing <= sum(each.nbytes for each in got)
        assert f"free at least {format_bytes(missing)}" in notes(caught.value)
        assert caught.value.run is run
    evicted = [value for value in got if not recoup.is_resident(value)]
    assert evicted
    for touch in (torch.sum, torch.Tensor.tolist, recoup.materialize, torch.Tensor.data_ptr):
        with pytest.raises(RuntimeError, match=r"ended without.*run\.resume\(budget\)") as raised:
            touch(evicted[0])
        assert "thread" not in str(raised.value)
    for change in (run.set_budget, run.set_budget):
        with pytest.raises(RuntimeError, match=r"suspended: run\.resume"):
            change("64MiB")
    # The remedy in the message works.
    run.resume("64MiB")
    assert all(recoup.is_resident(value) for value in got)
    assert bits_equal(got, [base.mul(i) for i in range(12)])


def test_tensors_that_a_suspended_scope_needs_cannot_be_written() -> None:
    """Evicted values are recomputed from these; ops outside of the scope are not recorded."""

    def carried(write: Callable[[], object]) -> None:
        with recoup.carry():
            write()

    def make(base: torch.Tensor) -> list[torch.Tensor]:
        own = base.add(torch.arange(2.0).repeat(2**17))
        return [own, *(own.mul(i) for i in range(12))]

    base = torch.arange(float(2**18))
    plain = make(base)
    with pytest.raises(recoup.OutOfBudgetError):
        with recoup.budget("8MiB") as run:
            got = make(base)
            run.check()
    assert sum(recoup.is_resident(each) for each in got) < len(got)
    writes: list[Callable[[torch.Tensor], object]] = [
        lambda each: each.add_(1),
        lambda each: each.numpy(),
        lambda each: each[3:5].zero_(),
        lambda each: torch.mul(each.detach(), 2, out=each.detach()),
        torch.Tensor.data_ptr,
        lambda each: each.untyped_storage().resize_(8),
        lambda each: each.detach().share_memory_(),
        lambda each: carried(lambda: each.add_(1)),
    ]
    evicted = next(each for each in got if not recoup.is_resident(each))
    with recoup.budget("64MiB"):
        touches = [torch.sum, torch.Tensor.numpy, torch.Tensor.tolist, lambda each: each.add_(1)]
        for touch in touches:
            with pytest.raises(RuntimeError, match=r"run\.resume\(budget\)"):
                touch(evicted)
        assert not recoup.is_resident(evicted)
        with contextlib.suppress(RuntimeError), recoup.pin(evicted):
            pass
    # The intermediate value is resident, or its input takes its place.
    needed = [got[0] if recoup.is_resident(got[0]) else base]
    for each in needed:
        before = each.clone()
        for write in writes:
            with pytest.raises(RuntimeError, match=r"suspended budget scope.*run\.resume"):
                write(each)
        with recoup.budget("64MiB"):
            with pytest.raises(RuntimeError, match=r"a new budget scope.*run\.resume"):
                each.add_(1)
        assert torch.equal(each, before)
    assert needed
    run.resume("64MiB")
    assert bits_equal(got, plain)
    got[0].add_(1)
    base.add_(1)


def test_values_of_an_abandoned_scope_are_lost() -> None:
    base = torch.arange(float(2**18))
    with pytest.raises(recoup.OutOfBudgetError):
        with recoup.budget("8MiB") as run:
            got = [base.mul(i) for i in range(12)]
    evicted = [value for value in got if not recoup.is_resident(value)]
    del run
    gc.collect()
    with pytest.raises(RuntimeError, match="bytes are lost"):
        evicted[0].sum()
    assert "data_ptr" not in vars(torch.Tensor)


def test_notes_before_python_3_11_are_warnings() -> None:
    class Old(Exception):  # noqa: N818
        add_note = property()  # makes `hasattr` false

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        add_note(Old(), "a note")
    assert [str(warning.message) for warning in caught] == ["a note"]


@pytest.mark.parametrize(
    "wrong", [{"max_replay_ratio": None}, {"max_replay_ratio": "10"}, {"move_ns_per_byte": "a"}]
)
def test_numeric_options_refuse_other_types(wrong: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=r"must be a number .*; got"):
        recoup.budget("8MiB", **split(wrong))


def too_much() -> list[torch.Tensor]:
    return [torch.arange(float(2**18)).mul(i) for i in range(12)]


def test_the_error_of_a_decorated_function_has_its_run() -> None:
    kept: list[torch.Tensor] = []

    @recoup.budget("8MiB")
    def fill() -> None:
        kept.extend(too_much())

    with pytest.raises(recoup.OutOfBudgetError) as caught:
        fill()
    error = caught.value
    assert error.run is not None and not all(recoup.is_resident(x) for x in kept)
    error.run.resume(error.enough_bytes)
    assert all(torch.equal(a, b) for a, b in zip(kept, too_much(), strict=True))


def test_closing_a_generator_raises_if_its_exit_does_not_fit() -> None:
    kept: list[torch.Tensor] = []

    def batches() -> Iterator[torch.Tensor]:
        with recoup.budget("8MiB"):
            for i in range(12):
                yield torch.arange(float(2**18)).mul(i)

    source = batches()
    kept.extend(itertools.islice(source, 12))
    with pytest.raises(recoup.OutOfBudgetError) as caught:
        source.close()  # type: ignore[attr-defined]
    assert caught.value.run is not None
    caught.value.run.resume(caught.value.enough_bytes)


def test_garbage_in_cycles_does_not_fail_an_exit() -> None:
    gc.disable()
    try:
        with recoup.budget("16MiB") as run:
            for _ in range(20):
                cycle: list[object] = [torch.ones(2**19).mul(2)]
                cycle.append(cycle)
    finally:
        gc.enable()
    assert not run._is_open


def test_the_least_budget_is_not_above_a_budget_that_ran() -> None:
    """Sources that a write makes depend on the budget, so they are not counted."""
    size = 2**18

    def program() -> None:
        leaf = torch.ones(size)
        with recoup.budget(budget):
            made = [(leaf * (i + 1)).exp() for i in range(50)]
            leaf.add_(1)
            large = torch.zeros(20 * size)
            sum(float(x.sum()) for x in (*made, large))

    least, ran = [], []
    for count in range(24, 80, 4):
        budget = count * 4 * size
        try:
            program()
            ran.append(budget)
        except recoup.OutOfBudgetError as error:
            least.append(error.least_bytes)
    assert ran and max(least, default=0) <= min(ran)


def test_frameworks_recognize_the_error_by_its_text() -> None:
    """accelerate, and so transformers, look for these words in the only argument."""
    with recoup.budget("1MiB"), pytest.raises(recoup.OutOfBudgetError) as caught:
        torch.ones(1 << 20)
    assert isinstance(caught.value, RuntimeError)
    (text,) = caught.value.args
    assert text.count(" out of memory.") == 1
    assert pickle.loads(pickle.dumps(caught.value)).args == (text,)
