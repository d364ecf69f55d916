"""What an op writes is what its schema says, or recoup's table of hidden writes."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
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
            continue  # needs what is not installed
        for sample in samples[:most]:
            yield info, sample


def _sweep(infos: list[Any], most: int) -> Watch:
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


def _check(watch: Watch) -> None:
    assert watch.calls > 100
    assert not watch.found, f"written without a word: {sorted(watch.found)}"


def test_some_ops() -> None:
    named = [info for info in op_db if "batch_norm" in info.name]
    _check(_sweep(named + op_db[::9], 2))


@pytest.mark.slow
def test_all_ops() -> None:
    _check(_sweep(op_db, 10**6))


def test_a_hidden_write_is_found() -> None:
    """The sweep sees the writes that the table has."""
    watch = Watch(set())
    x, mean, var = torch.randn(8, 4), torch.zeros(4), torch.ones(4)
    with watch:
        torch.batch_norm_update_stats(x, mean, var, 0.1)
    assert watch.found == {
        ("aten::batch_norm_update_stats", 1),
        ("aten::batch_norm_update_stats", 2),
    }


def test_update_stats_is_a_write() -> None:
    def program(evict: bool) -> tuple[list[float], list[float]]:
        torch.manual_seed(0)
        x, mean, var = torch.randn(64, 1024), torch.zeros(1024), torch.ones(1024)
        made = mean * 1 + 1
        torch.batch_norm_update_stats(x, mean, var, 0.1)
        if evict:
            recoup.evict(mean)
            recoup.evict(made)
        return mean.clone().tolist(), made.tolist()

    plain = program(False)
    with recoup.budget("64MiB"):
        assert program(True) == plain
