"""Every op of OpInfo gives plain bits with a result in paged memory."""

import random
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils._python_dispatch import TorchDispatchMode
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


def most_bytes(op: OpInfo, call: tuple[Any, ...]) -> int:
    """Size of the largest tensor that the op makes, in bytes, without memory for it; 0: unknown."""
    sizes = [0]

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            results = func(*args, **(kwargs or {}))
            for each in tree_flatten(results)[0]:
                if isinstance(each, torch.Tensor):
                    sizes.append(each.numel() * each.element_size())
            return results

    try:
        with FakeTensorMode() as mode, Sizes():
            first, args, kwargs = tree_map(
                lambda each: mode.from_tensor(each) if isinstance(each, torch.Tensor) else each,
                call,
            )
            op(first, *args, **kwargs)
    except Exception:  # these arguments cannot be enlarged, or sizes depend on data
        return 0
    return max(sizes)


def calls(op: OpInfo) -> list[tuple[tuple[Any, ...], list[torch.Tensor]]]:
    """Up to two calls with a result of LEAST elements or more, and their plain results."""
    found = []
    for sample in op.sample_inputs("cpu", torch.float32, requires_grad=False):
        call = (sample.input, sample.args, sample.kwargs)
        tensors = [each for each in tree_flatten(call)[0] if isinstance(each, torch.Tensor)]
        size = max((each.numel() for each in tensors), default=0)
        if not 0 < size < LEAST:
            continue
        larger = tree_map(lambda each: enlarged(each, -(-LEAST // size)), call)  # noqa: B023
        if MIB <= most_bytes(op, larger) < 3 * MIB:  # all of it may be resident
            try:
                found.append((larger, run(op, larger)))
            except (RuntimeError, ValueError, IndexError):
                continue  # these arguments cannot be enlarged
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
        torch.empty(budget)  # the first paged result, which charges the window
        results = run(op, call)
        scope.check()
        paged = scope.paged_results()
    assert paged is not None
    return results, paged.now_bytes > 0


def check_all(ops: list[OpInfo]) -> int:
    """Returns the number of ops with a paged result."""
    done = 0
    for op in ops:
        if torch.float32 not in op.dtypes or "empty" in op.name:
            continue  # uninitialized bytes are equal in no two runs
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
    assert check_all(ops) > 0, [each.name for each in ops]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_all_ops(part: int) -> None:
    assert check_all(op_db[part::PARTS]) > 30
