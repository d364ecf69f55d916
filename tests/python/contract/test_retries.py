"""Ops that run out of memory half way and run again give the same bits."""

import random
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import recoup

KIB = 1024


def crowd(seed: int) -> list[Tensor]:
    """Tensors of which some stay, so that free memory is fragmented."""
    chance = random.Random(seed)
    held = []
    for _ in range(chance.randint(3, 8)):
        size = 16 * KIB * chance.choice([1, 1, 2, 3]) // chance.choice([1, 2])
        held.append(torch.arange(size).float() * 2)
    pins = [recoup.pin(x) for x in held if chance.random() < 0.4 and recoup._C.active()]
    for i in sorted(chance.sample(range(len(held)), len(held) // 2), reverse=True):
        del held[i]
    del pins
    return held


def draw(seed: int) -> list[Tensor]:
    torch.manual_seed(0)
    weights = torch.rand(16 * KIB)
    held = crowd(seed)
    return [torch.multinomial(weights, 16 * KIB), torch.rand(4), *held]


def add_lists(seed: int) -> list[Tensor]:
    chance = random.Random(seed)
    a = [torch.ones(8 * KIB * chance.randint(1, 2)) for _ in range(3)]
    b = [torch.arange(x.numel()) for x in a]
    held = crowd(seed)
    torch._foreach_add_(a, b)  # converts each of b to float before it adds
    return [*(x + 0 for x in a), *held]


@pytest.mark.parametrize("program", [draw, add_lists])
def test_an_op_that_fits_only_at_the_second_try_has_the_same_bits(
    program: Callable[[int], list[Tensor]],
) -> None:
    for seed in range(150):
        plain = program(seed)
        for budget in range(448, 192, -16):
            try:
                with recoup.budget(budget * KIB, device="cpu"):
                    ours = program(seed)
            except recoup.OutOfBudgetError:
                break
            for a, b in zip(ours, plain, strict=True):
                assert torch.equal(a, b), (seed, budget)


def test_a_replay_has_autocast_within_an_op() -> None:
    with recoup.budget("64MiB") as run:
        torch.manual_seed(0)
        model = torch.nn.Bilinear(64, 64, 64)
        x = torch.rand(64, 64)
        with torch.autocast("cpu", torch.bfloat16):
            y = model(x, x)
        want = y.detach().clone()
        assert recoup.evict(y)
        assert torch.equal(y.detach(), want)
        assert not torch.is_autocast_enabled("cpu")
    assert run.stats().replays > 0


def test_a_replay_leaves_the_default_dtype_of_autocast_unchanged() -> None:
    default = torch.get_autocast_dtype("cpu")
    other = torch.float16 if default is torch.bfloat16 else torch.bfloat16
    with recoup.budget("64MiB") as run:
        x = torch.rand(64, 64)
        with torch.autocast("cpu", other):
            y = x.sin()
        assert recoup.evict(y)
        assert torch.equal(y, x.sin())
        assert torch.get_autocast_dtype("cpu") is default
    assert run.stats().replays == 1


def test_a_replay_has_the_matmul_precision_of_the_first_run() -> None:
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    try:
        with recoup.budget("64MiB"):
            x = torch.rand(256, 256)
            y = x @ x
            want = y.clone()
            torch.backends.cuda.matmul.fp32_precision = "ieee"
            assert recoup.evict(y)
            assert torch.equal(y, want)
            assert torch.backends.cuda.matmul.fp32_precision == "ieee"
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


def test_tensors_of_an_earlier_scope_are_ordinary_inputs() -> None:
    with recoup.budget("64MiB"):
        x = torch.ones(256 * KIB) * 3
    with recoup.budget("64MiB") as run:
        y = x.sin()
        assert recoup.evict(y)
        assert torch.equal(y, x.sin())
    assert run.stats().escapes == 0
