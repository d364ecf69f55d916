"""Results that take the block of an operand have the bits that they have elsewhere.

The test aid `in-place` makes every op that may overwrite an operand do so.
"""

from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

import recoup
from conftest import bits_equal

DTYPES = (torch.float32, torch.bfloat16)
ROW_WISE = (
    "_log_softmax _log_softmax_backward_data _softmax _softmax_backward_data native_dropout "
    "native_batch_norm_backward native_group_norm native_group_norm_backward native_layer_norm "
    "native_layer_norm_backward"
).split()
Call = tuple[torch._ops.OpOverload, tuple[Any, ...], dict[str, Any]]


class Calls(TorchDispatchMode):
    """Collects calls of ops that may overwrite an operand."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::")
        tagged = torch.Tag.pointwise in func.tags and not func._schema.is_mutable
        if tagged or name in ROW_WISE:
            self.calls.append((func, args, kwargs))
        return func(*args, **kwargs)


def enlarged(call: Call) -> Call:
    """The same call with many more elements, so that several threads share the work."""
    func, args, kwargs = call
    tensors = [each for each in tree_flatten((args, kwargs))[0] if isinstance(each, torch.Tensor)]
    shape = max((each.shape for each in tensors), key=lambda shape: shape.numel())
    times = -(-70_000 // max(1, shape.numel()))

    def larger(value: object) -> object:
        if isinstance(value, torch.Tensor) and value.shape == shape and value.dim() > 0:
            return value.detach().repeat(times, *[1] * (value.dim() - 1))
        return value

    args, kwargs = tree_map(larger, (args, kwargs))
    return func, args, kwargs


def samples(op: OpInfo, dtype: torch.dtype) -> list[Call]:
    found: dict[torch._ops.OpOverload, list[Call]] = {}
    for sample in op.sample_inputs("cpu", dtype, requires_grad=False):
        with Calls() as calls:
            try:
                op(sample.input, *sample.args, **sample.kwargs)
            except (AssertionError, RuntimeError):  # this PyTorch cannot run it
                continue
        for func, args, kwargs in calls.calls:
            found.setdefault(func, []).append((func, args, kwargs))
    return [call for calls in found.values() for call in calls[:3]]


def run(call: Call) -> list[torch.Tensor]:
    """The results, computed from copies of the arguments that can be replayed."""
    func, args, kwargs = call
    torch.manual_seed(0)

    def copy(value: object) -> object:
        return value.clone() if isinstance(value, torch.Tensor) else value

    args, kwargs = tree_map(copy, (args, kwargs))
    results = tree_flatten(func(*args, **kwargs))[0]
    return [each for each in results if isinstance(each, torch.Tensor)]


def in_place(call: Call, monkeypatch: pytest.MonkeyPatch) -> tuple[list[torch.Tensor], int]:
    monkeypatch.setenv("RECOUP_TEST_AIDS", "in-place")
    options = recoup.Options(small_result_bytes=0)
    with recoup.budget("64MiB", policy="dtr", options=options) as scope:
        results = run(call)
        assert scope.stats().escapes == 0
    return results, scope.stats().in_place_results


def check_all(ops: list[OpInfo], monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Returns the names of the overloads of which a result was in place."""
    done: set[str] = set()
    for op in ops:
        for dtype in DTYPES:
            if dtype not in op.dtypes:
                continue
            for call in samples(op, dtype):
                for each in (call, enlarged(call)):
                    try:
                        plain = run(each)
                    except (RuntimeError, IndexError):
                        continue  # these arguments cannot be enlarged
                    try:
                        results, count = in_place(each, monkeypatch)
                    except recoup.OutOfBudgetError as error:
                        assert "did not get the block" in str(error)
                        continue  # the kernel runs several others: the first result is not its own
                    assert bits_equal(results, plain), (str(call[0]), dtype)
                    if count:
                        done.add(str(call[0]))
    return done


PARTS = 8


@pytest.mark.parametrize("part", range(PARTS))
def test_ops_in_place(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    done = check_all(op_db[part::PARTS], monkeypatch)
    assert len(done) > 5, done
