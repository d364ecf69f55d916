"""Constructors of tensors read their elements by pointer, without an op on dispatch key Fake."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import recoup
from conftest import bits_equal
from recoup.bench.flat_options import split

Elements = list[torch.Tensor]
Make = Callable[[Elements], Any]

MAKERS: dict[str, Make] = {
    "tensor": lambda e: torch.tensor(e),
    "tensor of lists": lambda e: torch.tensor([e, e[::-1]]),
    "tensor of tuples": lambda e: torch.tensor(((e[0],), (e[1],))),
    "tensor with numbers": lambda e: torch.tensor([e[0], 1.0, e[1], 2]),
    "tensor of integers": lambda e: torch.tensor([e[0].long(), e[1].long()], dtype=torch.int16),
    "as_tensor": lambda e: torch.as_tensor(e),
    "asarray": lambda e: torch.asarray(e),
    "new": lambda e: torch.empty(0).new(e),
    "new_tensor": lambda e: torch.empty(0).new_tensor(e),
    "new_full": lambda e: torch.empty(0).new_full((2, 2), e[0]),
    "FloatTensor": lambda e: torch.FloatTensor(e),
    "DoubleTensor": lambda e: torch.DoubleTensor(e),
    "Tensor": lambda e: torch.Tensor(e),
    "Tensor of lists": lambda e: torch.Tensor([e, e]),
    "nested_tensor": lambda e: torch.nested.nested_tensor(
        [torch.stack(e), e[0].reshape(1)]
    ).unbind(),
    "nested_tensor of lists": lambda e: torch.nested.nested_tensor([e, e[:1]]).unbind(),
    "sparse_coo_tensor": lambda e: torch.sparse_coo_tensor([[0, 1]], e, (2,)),
    "sparse_coo_tensor of indices": lambda e: torch.sparse_coo_tensor(
        [[e[0].long(), e[1].long() + 1]], [1.0, 2.0], (20,)
    ),
    "sparse_coo_tensor checked": lambda e: torch.sparse_coo_tensor(
        torch.tensor([[0, 1], [1, 0]]), e, (2, 2), check_invariants=True
    ),
    "sparse_csr_tensor": lambda e: torch.sparse_csr_tensor(
        [0, 1, 2], [0, 1], e, (2, 2), check_invariants=True
    ),
    "sparse_bsr_tensor": lambda e: torch.sparse_bsr_tensor(
        [0, 1], [0], [[e]], (1, 2), check_invariants=True
    ),
    "full": lambda e: torch.full((2,), e[0]),
    "arange": lambda e: torch.arange(e[0], e[1] + 4, 1),
    "linspace": lambda e: torch.linspace(e[0], e[1], 5),
    "index": lambda e: torch.arange(40.0).reshape(2, 20)[[e[0].long() % 2, e[1].long()]],
    "slice": lambda e: torch.arange(40.0)[e[0].long() : e[1].long() + 3],
    "assignment": lambda e: torch.zeros(4).index_put_((torch.tensor([0, 1]),), torch.tensor(e)),
    "storage": lambda e: torch.tensor(torch.stack(e).storage()),
    "storage of another type": lambda e: torch.tensor(
        torch.stack(e).double().storage(), dtype=torch.float64
    ),
    "FloatTensor of a storage": lambda e: torch.FloatTensor(torch.stack(e).storage()),
    "list of storages": lambda e: [
        torch.tensor(each.repeat(2000).storage(), dtype=torch.float32) for each in e
    ],
    "float": lambda e: [float(each) for each in e],
    "format": lambda e: f"{e[0]} {e[1]:.3f} {e}",
}


@pytest.mark.parametrize(
    "options", [{}, {"small_result_bytes": 0}, {"evict_after_op": True}], ids=str
)
@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("views", [True, False])
@pytest.mark.filterwarnings("ignore")
def test_evicted_elements_are_rematerialized(
    name: str, options: dict[str, Any], views: bool
) -> None:
    def program(on: bool) -> Any:
        base = torch.arange(250_000.0) * 2
        elements = [base[2] if views else base[2] * 1, base[5] if views else base[5] * 1]
        if on:
            for tensor in (base, *elements):
                recoup.evict(tensor)
        return MAKERS[name](elements)

    plain = program(False)
    with recoup.budget("64MiB", **split(options)) as run:
        got = program(True)
        assert bits_equal(got, plain)
        run.check()


def test_elements_that_were_evicted_under_pressure_are_rematerialized() -> None:
    def program() -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.arange(250_000.0)
        y = x * 2
        rows = [y[0], y[1]]
        big = [x + i for i in range(8)]
        assert len(big) == 8
        return torch.tensor(rows), torch.stack(rows)

    plain = program()
    with recoup.budget("4MB") as run:
        assert bits_equal(program(), plain)
        run.check()


def test_an_evicted_storage_is_rematerialized() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for options in ({}, {"evict_after_op": True}):
            for dtype in (None, torch.float32):
                with recoup.budget("64MiB", **split(options)):
                    a = torch.arange(10_000.0) * 2
                    storage = a.storage()
                    recoup.evict(a)
                    assert bits_equal(
                        torch.tensor(storage, dtype=dtype), torch.arange(10_000.0) * 2
                    )
