"""Kernels that replace ATen's."""

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
def test_a_kernel_that_replaces_atens_is_an_opaque_op() -> None:
    both(program, "256KiB")


def test_an_override_is_detected_after_the_op_was_used() -> None:
    with recoup.budget("1MiB"):
        torch.nn.functional.silu(torch.ones(N))
    library = torch.library.Library("aten", "IMPL")
    try:
        library.impl("silu", counting_silu, "CPU", allow_override=True)
        both(program, "256KiB")
    finally:
        library._destroy()
    with recoup.budget("1MiB"):  # the override is removed
        y = torch.nn.functional.silu(torch.ones(N) + 0)
        assert recoup.evict(y) and torch.equal(y, torch.nn.functional.silu(torch.ones(N)))


def test_an_override_for_gpus_does_not_apply_to_the_cpu() -> None:
    """PyTorch itself has such overrides: otherwise results on the CPU would be unevictable."""
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


def test_kernels_of_aten_are_not_taken_for_overrides() -> None:
    theirs = _C.overridden_ops()
    for name in theirs:
        table = torch._C._dispatch_dump_table(name)
        assert ".py:" in table, f"{name} is ATen's own:\n{table}"
    assert "aten::add.Tensor" not in theirs and "aten::_sparse_sum" not in theirs
