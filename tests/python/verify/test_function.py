"""`recoup.verify`: two trainings in this process."""

import os
import random
import re
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import recoup
from recoup._patching import module_names, step_marks

STEPS = 4


class Net(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.first = nn.Linear(16, 32)
        self.drop = nn.Dropout(dropout)
        self.last = nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        last: Tensor = self.last(self.drop(self.first(x).tanh()))
        return last


def train(
    *,
    checkpoints: bool = False,
    preserves: bool = True,
    dropout: float = 0.0,
    rate: float = 0.1,
    steps: int = STEPS,
    around: Callable[[], AbstractContextManager[object]] = nullcontext,
    models: int = 1,
    keep: list[nn.Module] | None = None,
) -> None:
    nets = [Net(dropout) for _ in range(models)]
    if keep is not None:
        keep.extend(nets)
    optimizers = [torch.optim.Adam(net.parameters(), lr=rate) for net in nets]
    with around():
        for _ in range(steps):
            x = torch.randn(8, 16)
            for net, optimizer in zip(nets, optimizers, strict=True):
                if checkpoints:
                    y = checkpoint(net, x, use_reentrant=False, preserve_rng_state=preserves)
                else:
                    y = net(x)
                y.square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()


def test_equal_trainings_are_equal() -> None:
    found = recoup.verify(train, lambda: train(checkpoints=True))
    assert found and found.is_equal
    assert (found.steps, found.step, found.item, found.op) == (STEPS, None, "", "")
    assert str(found) == "equal after every step (4 steps)"


def test_a_budget_is_equal() -> None:
    runs: list[recoup.Run] = []

    def in_budget() -> None:
        with recoup.budget("192KiB") as run:
            runs.append(run)
            train(dropout=0.5)

    assert recoup.verify(lambda: train(dropout=0.5), in_budget)
    assert runs[0].stats().op_count > 0


def test_redrawn_dropout_is_named() -> None:
    found = recoup.verify(
        lambda: train(dropout=0.5),
        lambda: train(dropout=0.5, checkpoints=True, preserves=False),
    )
    assert not found and found.step == 1 and found.steps == 1
    assert found.item.startswith("gradient Net.")
    assert (found.op, found.module) == ("aten.bernoulli_.float", "Net.drop")
    assert not found.is_rounding
    assert "run again by the backward pass" in str(found)


def test_other_arguments_are_named() -> None:
    found = recoup.verify(train, lambda: train(rate=0.2))
    assert "its arguments are (" in found.text and found.step == 1


def test_a_sum_in_another_order_is_a_rounding_difference() -> None:
    def train_sums(parts: int) -> None:
        weight = nn.Parameter(torch.ones(4096))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        data = torch.randn(4096)
        loss = sum(((weight * data).square().chunk(parts)[i].sum() for i in range(parts)), start=0)
        assert isinstance(loss, Tensor)
        loss.backward()
        optimizer.step()

    torch.manual_seed(0)
    found = recoup.verify(lambda: train_sums(1), lambda: train_sums(3))
    assert found.is_rounding and found.item == "loss 0"
    assert "a rounding difference" in found.text


def test_parameters_of_no_module_have_names_of_their_own() -> None:
    def train_parts(rate: float = 0.1) -> None:
        weight, bias = torch.ones(3, requires_grad=True), torch.zeros(1, requires_grad=True)
        groups = [{"params": [weight]}, {"params": [bias], "lr": rate}]
        optimizer = torch.optim.Adam(groups, lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            ((weight * 2).square().sum() + bias.exp().sum()).backward()
            optimizer.step()

    assert recoup.verify(train_parts, train_parts)
    found = recoup.verify(train_parts, lambda: train_parts(0.2))
    assert found.step == 1 and found.item == "parameter Adam.param_groups.1.0"


def test_an_iterator_of_losses_is_passed_on() -> None:
    def train_two() -> None:
        weight = nn.Parameter(torch.ones(4))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        torch.autograd.backward((weight * i).sum() for i in (1.0, 2.0))  # type: ignore[arg-type]
        assert weight.grad is not None and weight.grad[0] == 3
        optimizer.step()

    assert recoup.verify(train_two, train_two)


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        (STEPS - 1, "different: the other run ended after 3 steps, 1 too early"),
        (STEPS + 1, "different: the other run has more than 4 steps"),
    ],
)
def test_other_numbers_of_steps_differ(steps: int, text: str) -> None:
    found = recoup.verify(train, lambda: train(steps=steps))
    assert not found and str(found) == text and found.step is None


def test_steps_limits_both() -> None:
    calls = []

    def forever() -> None:
        calls.append(1)
        train(steps=10**9)

    found = recoup.verify(forever, forever, steps=3)
    assert found and found.steps == 3 and len(calls) == 2


def test_generators_are_equal_for_both_and_restored() -> None:
    seen: list[tuple[float, float, float]] = []

    def draws() -> None:
        seen.append((torch.rand(()).item(), random.random(), numpy.random.rand()))
        train()

    torch.manual_seed(3)
    random.seed(3)
    numpy.random.seed(3)
    assert recoup.verify(draws, draws)
    assert seen[0] == seen[1]
    assert (torch.rand(()).item(), random.random(), numpy.random.rand()) == seen[0]


def test_a_changed_draw_of_python_is_found() -> None:
    def extra() -> None:
        random.random()
        train()

    found = recoup.verify(train, extra)
    assert found.item == "generator random"


def test_models_of_earlier_runs_are_not_compared() -> None:
    kept: list[nn.Module] = []
    for _ in range(2):
        assert recoup.verify(lambda: train(keep=kept), lambda: train(keep=kept, checkpoints=True))
    assert recoup.verify(train, train)
    found = recoup.verify(lambda: train(models=3, keep=kept), lambda: train(models=3, rate=0.2))
    assert found.step == 1 and found.item == "parameter Net.first.weight"


def test_a_model_of_both_runs_is_compared() -> None:
    """A frozen part that both runs share, and its buffers."""
    shared = nn.BatchNorm1d(16)
    with torch.no_grad():
        shared(torch.randn(4, 16))

    def run(mode: bool) -> None:
        shared.load_state_dict(nn.BatchNorm1d(16).state_dict())
        shared.train(mode)
        train_with(shared)

    def train_with(part: nn.Module) -> None:
        net = nn.Linear(16, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        with torch.no_grad():
            part(torch.randn(8, 16))
        net(torch.randn(8, 16)).sum().backward()
        optimizer.step()

    assert recoup.verify(lambda: run(True), lambda: run(True))
    found = recoup.verify(lambda: run(True), lambda: run(False))
    assert found.item == "buffer BatchNorm1d.running_mean"


def train_blocks(make: Callable[[], nn.Module], reentrant: bool | None) -> None:
    """Trains blocks, each in a checkpoint unless `reentrant` is None."""
    torch.manual_seed(0)
    net = nn.ModuleList(make() for _ in range(4))
    head = nn.Linear(64, 1)
    optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)
    x = torch.randn(256, 64)
    for _ in range(2):
        y = x
        for block in net:
            y = block(y) if reentrant is None else checkpoint(block, y, use_reentrant=reentrant)
        optimizer.zero_grad()
        head(y).square().mean().backward()
        optimizer.step()


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_the_run_that_alone_has_a_gradient_is_named_and_the_op_it_comes_from() -> None:
    """A reentrant checkpoint whose input needs no gradient computes none for its parameters."""

    def plain() -> None:
        train_blocks(lambda: nn.Linear(64, 64), None)

    def frozen() -> None:
        train_blocks(lambda: nn.Linear(64, 64), True)

    found = recoup.verify(plain, frozen)
    assert found.item == "gradient Linear#3.bias" and "only the reference has it" in found.text
    assert (found.op, found.module) == ("aten.mm.default", "Linear")
    assert "in this step of the reference, in the other run 1 times" in found.text
    found = recoup.verify(frozen, plain)
    assert "only the other run has it" in found.text and found.op == "aten.mm.default"
    assert "times in this step, in the reference 1 times" in found.text


def test_an_op_that_reads_memory_that_nothing_has_written_is_named() -> None:
    """A checkpoint of RReLU (PyTorch 2.13): backward multiplies by noise that was never drawn."""

    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(64, 64), nn.RReLU())

    before = os.environ.get("RECOUP_TEST_AIDS")
    found = recoup.verify(lambda: train_blocks(make, None), lambda: train_blocks(make, False))
    assert "rrelu" in found.op and os.environ.get("RECOUP_TEST_AIDS") == before
    assert re.search("the reference does not run it|uninitialized memory", found.text)


def reads_a_product(unwritten: bool, kept: list[Tensor]) -> None:
    weight = nn.Parameter(torch.ones(10_000))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    # Memory that is freed with other bytes in each run, as the program before left it.
    kept.append(torch.empty(0))
    torch.full((10_000,), float(len(kept)))
    data = torch.empty(10_000) if unwritten else torch.zeros(10_000)
    (weight * data).sum().backward()
    optimizer.step()


def test_a_product_of_unwritten_memory_is_named() -> None:
    kept: list[Tensor] = []
    zeros, unwritten = (lambda: reads_a_product(False, kept)), (lambda: reads_a_product(True, kept))
    for one, two, which in (
        (zeros, unwritten, "the other run"),
        (unwritten, zeros, "the reference"),
    ):
        # The C library may return a block that has the same bytes in both runs. Such a run repeats.
        said = f"{which} reads memory there that no op has written"
        searches = (recoup.verify(one, two) for _ in range(8))
        found = next((found for found in searches if said in found.text), None)
        assert found is not None and found.op == "aten.mul.Tensor"
        assert "uninitialized memory" in found.text


def test_a_product_of_unwritten_memory_is_one_of_zeros_in_a_scope() -> None:
    kept: list[Tensor] = []

    def reads(unwritten: bool) -> None:
        with recoup.budget("64MiB"):
            reads_a_product(unwritten, kept)

    found = recoup.verify(lambda: reads(False), lambda: reads(True))
    assert found.is_equal


def test_a_run_that_differs_for_another_reason_reads_no_unwritten_memory() -> None:
    calls: list[int] = []

    def counts() -> None:
        calls.append(0)
        train(rate=0.2 * len(calls))

    found = recoup.verify(train, counts)
    assert not found.op and "computed something else when it was repeated" in found.text


class Counting(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def test_modes_of_the_program_end_in_order() -> None:
    before = _python_dispatch.is_in_torch_dispatch_mode()
    found = recoup.verify(
        lambda: train(around=Counting),  # type: ignore[arg-type]
        lambda: train(around=Counting, rate=0.2),  # type: ignore[arg-type]
    )
    assert found.op
    assert torch._C._len_torch_dispatch_stack() == 0
    assert _python_dispatch.is_in_torch_dispatch_mode() == before
    assert torch.ones(2).sum() == 2


def test_an_error_of_a_function_passes_through_and_leaves_nothing() -> None:
    def fails() -> None:
        train(steps=2)
        raise KeyError("mine")

    for pair in ((fails, train), (train, fails)):
        with pytest.raises(KeyError, match="mine"):
            recoup.verify(*pair)
    assert not step_marks._handles and not module_names._listeners
    assert recoup.verify(train, train)


def test_a_program_that_wraps_exceptions_ends_early() -> None:
    def wraps() -> None:
        try:
            train()
        except BaseException as error:
            raise RuntimeError("the training failed") from error

    assert recoup.verify(wraps, wraps, steps=2)


def test_a_program_that_goes_on_is_not_compared_further() -> None:
    def goes_on(rate: float) -> None:
        net = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=rate)
        for _ in range(5):
            net(torch.randn(3, 4)).square().mean().backward()
            with suppress(BaseException):
                optimizer.step()

    assert recoup.verify(lambda: goes_on(0.1), lambda: goes_on(0.1), steps=2)
    found = recoup.verify(lambda: goes_on(0.1), lambda: goes_on(0.2))
    assert (found.step, found.steps) == (1, 1)


def test_an_interrupt_passes_through() -> None:
    def interrupted() -> None:
        try:
            train(rate=0.2)
        finally:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        recoup.verify(train, interrupted)
    assert recoup.verify(train, train)


def test_a_run_that_fails_when_it_is_repeated_differs() -> None:
    calls = []

    def once() -> None:
        calls.append(1)
        if len(calls) > 1:
            raise KeyError("used up")
        train(rate=0.2)

    found = recoup.verify(train, once)
    assert found.step == 1 and not found.op
    assert "a run computed something else when it was repeated" in found.text


@pytest.mark.parametrize("wrong", [None, "train.py", 3, nn.Linear])
def test_wrong_functions_are_refused(wrong: Any) -> None:
    if callable(wrong):
        with pytest.raises(TypeError, match="required positional"):
            recoup.verify(train, wrong)
        return
    for pair in ((wrong, train), (train, wrong)):
        with pytest.raises(TypeError, match="takes two functions"):
            recoup.verify(*pair)


@pytest.mark.parametrize("steps", [0, -1])
def test_wrong_numbers_of_steps_are_refused(steps: int) -> None:
    with pytest.raises(ValueError, match="steps must be at least 1"):
        recoup.verify(train, train, steps=steps)


def test_a_reference_without_steps_is_refused() -> None:
    with pytest.raises(ValueError, match="without a step of an optimizer"):
        recoup.verify(lambda: None, train)


def test_only_one_comparison_runs_at_a_time() -> None:
    def nested() -> None:
        train(steps=1)
        recoup.verify(train, train)

    with pytest.raises(RuntimeError, match="already running"):
        recoup.verify(nested, train)
    assert recoup.verify(train, train)


def test_a_training_on_another_thread_is_compared() -> None:
    def on_a_thread() -> None:
        thread = threading.Thread(target=train)
        thread.start()
        thread.join()

    assert recoup.verify(train, on_a_thread)
    found = recoup.verify(lambda: train(rate=0.2), on_a_thread)
    assert found.step == 1 and "the ops of the step could not be observed" in found.text
    assert torch.ones(2).sum() == 2
