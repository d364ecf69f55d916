"""Kernels that somebody put in the place of ATen's."""

from collections.abc import Iterator

import pytest
import torch

import recoup
from differential import Hand, N, both, made
from recoup import _C

_KEPT: dict[str, torch.Tensor] = {}


def counting_silu(x: torch.Tensor) -> torch.Tensor:
    _KEPT["calls"].add_(1.0)
    return x * torch.sigmoid(x) + _KEPT["calls"]


@pytest.fixture
def override() -> Iterator[None]:
    library = torch.library.Library("aten", "IMPL")
    library.impl("silu", counting_silu, "CPU", allow_override=True)
    yield
    library._destroy()


def program(hand: Hand) -> object:
    _KEPT["calls"] = torch.zeros(N)
    seen = _KEPT["calls"] * 2
    hand.try_evict(seen, _KEPT["calls"])
    first = torch.nn.functional.silu(made())
    litter = [made(i) for i in range(100)]
    del litter
    hand.try_evict(first, seen)
    second = torch.nn.functional.silu(first)
    hand.try_evict(first, second)
    return seen, first, second, _KEPT["calls"]


@pytest.mark.usefixtures("override")
def test_a_kernel_in_the_place_of_atens_is_a_guest() -> None:
    both(program, "256KiB")


def test_it_is_seen_though_the_op_was_looked_up_before() -> None:
    with recoup.budget("1MiB"):
        torch.nn.functional.silu(torch.ones(N))
    library = torch.library.Library("aten", "IMPL")
    try:
        library.impl("silu", counting_silu, "CPU", allow_override=True)
        both(program, "256KiB")
    finally:
        library._destroy()
    with recoup.budget("1MiB"):  # and it is gone
        y = torch.nn.functional.silu(torch.ones(N) + 0)
        assert recoup.evict(y) and torch.equal(y, torch.nn.functional.silu(torch.ones(N)))


def test_one_for_gpus_is_none_on_the_cpu() -> None:
    """PyTorch itself has such kernels: the CPU's results could not be evicted any more."""
    library = torch.library.Library("aten", "IMPL")
    try:
        library.impl("silu", counting_silu, "CUDA", allow_override=True)
        assert "aten::silu" in _C.overridden_ops()
        with recoup.budget("1MiB"):
            x = torch.ones(N) + 0
            y = torch.nn.functional.silu(x)
            assert recoup.evict(y) and torch.equal(y, torch.nn.functional.silu(x))
    finally:
        library._destroy()


def test_of_atens_own_kernels_none_is_taken_for_another() -> None:
    theirs = _C.overridden_ops()
    for name in theirs:
        table = torch._C._dispatch_dump_table(name)
        assert ".py:" in table, f"{name} is ATen's own:\n{table}"
    assert "aten::add.Tensor" not in theirs and "aten::_sparse_sum" not in theirs
