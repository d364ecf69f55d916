"""Every op of OpInfo gives plain bits with a result in paged memory."""

import random
from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils._pytree import tree_flatten, tree_map

import recoup
from conftest import bits_equal

MIB = 1 << 20
WINDOW = 16 * MIB
LEAST = 1 << 18
"""Elements of a result that is paged: 1 MiB of float32."""
PARTS = 6
SHORT = 12
"""Ops of each part in the short form."""


def enlarged(value: object, rows: int) -> object:
    """The value with `rows` times as many rows, if it is a tensor."""
    if isinstance(value, torch.Tensor) and value.dim() > 0 and value.layout == torch.strided:
        return value.detach().repeat(rows, *[1] * (value.dim() - 1))
    return value


def run(op: OpInfo, call: tuple[Any, ...]) -> list[torch.Tensor]:
    torch.manual_seed(0)
    first, args, kwargs = tree_map(
        lambda each: each.clone() if isinstance(each, torch.Tensor) else each, call
    )
    results = tree_flatten(op(first, *args, **kwargs))[0]
    return [each for each in results if isinstance(each, torch.Tensor)]


def calls(op: OpInfo) -> list[tuple[tuple[Any, ...], list[torch.Tensor]]]:
    """Up to two calls with a result of LEAST elements or more, and their plain results."""
    found = []
    for sample in op.sample_inputs("cpu", torch.float32, requires_grad=False):
        call = (sample.input, sample.args, sample.kwargs)
        size = max((each.numel() for each in tree_flatten(call)[0] if hasattr(each, "numel")))
        if not 0 < size < LEAST:
            continue
        larger = tree_map(lambda each: enlarged(each, -(-LEAST // size)), call)  # noqa: B023
        try:
            results = run(op, larger)
        except (RuntimeError, ValueError, IndexError, TypeError):
            continue  # these arguments cannot be enlarged
        sizes = [each.numel() * each.element_size() for each in results]
        if results and max(sizes) >= MIB and sum(sizes) < 64 * MIB:
            found.append((larger, results))
        if len(found) == 2:
            break
    return found


def in_paged_memory(op: OpInfo, call: tuple[Any, ...]) -> tuple[list[torch.Tensor], bool]:
    """The results in a budget with room for the arguments alone, and whether one was paged."""
    leaves = [each for each in tree_flatten(call)[0] if isinstance(each, torch.Tensor)]
    given = sum(each.untyped_storage().nbytes() for each in leaves)
    # run() copies the arguments in the scope; those from outside are charged, too.
    budget = WINDOW + 2 * given + (MIB >> 1)
    options = recoup.Options(page_window=WINDOW, reuse_operands=False)
    with recoup.budget(budget, policy="dtr", options=options) as scope:
        results = run(op, call)
        scope.check()
    return results, scope.paged_results() is not None


def check_all(ops: list[OpInfo]) -> int:
    """Returns the number of ops with a paged result."""
    done = 0
    for op in ops:
        if torch.float32 not in op.dtypes:
            continue
        for call, plain in calls(op):
            try:
                results, paged = in_paged_memory(op, call)
            except recoup.OutOfBudgetError:
                continue  # its operands do not fit, or its result is written outside of an op
            assert bits_equal(results, plain), op.full_name
            done += paged
    return done


@pytest.mark.parametrize("part", range(PARTS))
def test_some_ops(part: int) -> None:
    ops = random.Random(part).sample(op_db, SHORT)
    assert check_all(ops) > 0


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_all_ops(part: int) -> None:
    assert check_all(op_db[part::PARTS]) > 30
