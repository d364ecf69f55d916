"""An op replaces all of its `out` without reading it: recoup counts no earlier content as read."""

import itertools
import random
import warnings
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from differential import bits
from opinfo_worker import SEED, dtypes_of, seed_all
from recoup import _C
from repeatable_worker import copy_of

SAMPLES = 3


def filled(leaf: Any, byte: int) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    out = torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype)
    out.untyped_storage().fill_(byte)
    return out


def is_known(func: Any) -> bool:
    name, overload = func._schema.name, func._schema.overload_name
    return name.startswith("aten::") and _C.replay_traits(name, overload)["repeatable"]


class IntoTwo(TorchDispatchMode):
    """Runs each op that has an `out` also into tensors with other bytes, and compares these."""

    def __init__(self) -> None:
        super().__init__()
        self.compared: set[str] = set()
        self.wrong: dict[str, str] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        outs = [each.name for each in func._schema.arguments if each.is_out]
        if outs and is_known(func):
            self._compare(func, args, kwargs, outs)
        return func(*args, **kwargs)

    def _compare(self, func: Any, args: Any, kwargs: dict[str, Any], outs: list[str]) -> None:
        results = []
        state = torch.get_rng_state()
        for byte in (0, 0x7F):
            copies: dict[int, torch.UntypedStorage] = {}
            given = tree_map(lambda leaf, c=copies: copy_of(leaf, c), (args, kwargs))
            into = {
                name: tree_map(lambda leaf, b=byte: filled(leaf, b), kwargs[name]) for name in outs
            }
            shapes = [into[name].shape for name in outs]
            torch.set_rng_state(state)
            func(*given[0], **(given[1] | into))
            if [into[name].shape for name in outs] != shapes:
                return  # it was resized, which is another storage for recoup
            results.append([bits(into[name]) for name in outs])
        torch.set_rng_state(state)
        self.compared.add(str(func))
        if results[0] != results[1]:
            self.wrong[str(func)] = str(shapes)


def compared(ops: Iterable[Any]) -> set[str]:
    """The ops whose results are equal. Others fail the test."""
    warnings.simplefilter("ignore")
    mode = IntoTwo()
    for op in ops:
        if not op.supports_out:
            continue
        for dtype in dtypes_of(op):
            seed_all(SEED)
            for sample in itertools.islice(op.sample_inputs("cpu", dtype), SAMPLES):
                try:
                    seed_all(SEED)
                    expected = op(sample.input, *sample.args, **sample.kwargs)
                    with mode:
                        out = tree_map(lambda leaf: filled(leaf, 0), expected)
                        op(sample.input, *sample.args, **sample.kwargs, out=out)
                except Exception:
                    continue
    assert mode.wrong == {}
    return mode.compared


def test_results_of_some_ops_do_not_depend_on_what_out_held() -> None:
    assert len(compared(random.Random(SEED).sample(op_db, len(op_db) // 5))) > 60


@pytest.mark.slow
def test_results_do_not_depend_on_what_out_held() -> None:
    assert len(compared(op_db)) > 250
