"""Runs PyTorch's operators and finds arguments that they write although the schema denies it.

usage: python hidden_writes_worker.py STEP MOST     every STEP-th operator, MOST samples of each

Runs in a new process: PyTorch's database of operators freezes global settings when it is imported.
Prints the number of calls, and the hidden writes.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import recoup

Write = tuple[str, int]


class Watch(TorchDispatchMode):
    """Compares the bytes of every argument before and after each op."""

    def __init__(self, hidden: set[Write]) -> None:
        super().__init__()
        self.hidden = hidden
        self.found: set[Write] = set()
        self.calls = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        schema = func._schema
        given = list(zip(schema.arguments, args, strict=False))
        given += [(a, kwargs[a.name]) for a in schema.arguments if a.name in kwargs]
        before = []
        for position, (argument, value) in enumerate(given):
            if argument.alias_info is not None and argument.alias_info.is_write:
                continue
            for tensor in tree_leaves(value):
                if isinstance(tensor, torch.Tensor) and _plain(tensor):
                    before.append((position, tensor, _bytes(tensor)))
        result = func(*args, **kwargs)
        self.calls += 1
        for position, tensor, old in before:
            if not torch.equal(old, _bytes(tensor)) and (schema.name, position) not in self.hidden:
                written = [
                    t
                    for a, v in given
                    if a.alias_info is not None and a.alias_info.is_write
                    for t in tree_leaves(v)
                    if isinstance(t, torch.Tensor)
                ]
                storage = tensor.untyped_storage()._cdata
                if storage not in {t.untyped_storage()._cdata for t in written if _plain(t)}:
                    self.found.add((schema.name, position))
        return result


def _plain(tensor: torch.Tensor) -> bool:
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.layout == torch.strided
        and not tensor.is_quantized
        and not tensor._is_zerotensor()
        and tensor.device.type == "cpu"
    )


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    whole = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())  # type: ignore[call-overload]
    return whole.clone()


def _samples(infos: list[Any], most: int) -> Iterator[tuple[Any, Any]]:
    for info in infos:
        if not info.supports_dtype(torch.float32, "cpu"):
            continue
        try:
            samples = list(info.sample_inputs("cpu", torch.float32, requires_grad=False))
        except Exception:
            continue  # the samples need a package that is not installed
        for sample in samples[:most]:
            yield info, sample


def _sweep(step: int, most: int) -> Watch:
    from torch.testing._internal.common_methods_invocations import op_db

    infos = [i for i in op_db if "batch_norm" in i.name] + op_db[::step]
    hidden = {
        (name, position)
        for table, name, positions in recoup._C.named_ops()
        if table == "hidden writes"
        for position in positions
    }
    watch = Watch(hidden)
    for info, sample in _samples(infos, most):
        with watch:
            try:
                info(sample.input, *sample.args, **sample.kwargs)
            except Exception:
                continue  # an error sample, or an op that no mode may see
    return watch


if __name__ == "__main__":
    swept = _sweep(*map(int, sys.argv[1:]))
    print(json.dumps({"calls": swept.calls, "found": sorted(swept.found)}))
