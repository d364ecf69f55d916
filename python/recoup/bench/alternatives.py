"""Common ways of saving memory in PyTorch, each as another way to train a net of the bench."""

import contextlib
import importlib
import importlib.util
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
import torch._dynamo
import torch._functorch.config as functorch_config
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from recoup.bench.blocks import Checkpoint, in_segments
from recoup.bench.nets import Batch, Net

_BUDGETS = ("1.0", "0.5", "0.3", "0.05", "0.0")
"""Values of activation_memory_budget: 1.0 is the compiler's default, 0.0 keeps inputs alone."""

_aten = torch.ops.aten
SAVED_OPS = [
    _aten.mm.default,
    _aten.addmm.default,
    _aten.bmm.default,
    _aten.baddbmm.default,
    _aten.convolution.default,
    _aten.mkldnn_rnn_layer.default,
    _aten._scaled_dot_product_flash_attention_for_cpu.default,
]
"""Matrix products, convolutions, and fused ops that consist of them."""


@dataclass(frozen=True)
class Alternative:
    """A way to train in less memory."""

    name: str
    change: Callable[[Net], Net]
    """Returns the net that trains in this way."""
    around: Callable[[], AbstractContextManager[None]] = field(default=nullcontext)
    """Context manager around all runs."""
    needs: str = ""
    """The module that it requires, unless that is torch."""
    note: Callable[[], str] = str
    """A remark on the past runs; empty if there is none."""
    by_default: bool = True
    """Whether `all` includes it."""


def _blocks(checkpoint: Checkpoint, length: int | None = 1) -> Callable[[Net], Net]:
    return lambda net: in_segments(net, checkpoint, length)


_PLAIN = partial(checkpoint, use_reentrant=False)
_SELECTIVE = partial(_PLAIN, context_fn=partial(create_selective_checkpoint_contexts, SAVED_OPS))


class _RandomState:
    """Restores the CPU's random generator at replays, which torch_remat does not by itself."""

    def snapshot(self) -> Tensor:
        return torch.get_rng_state()

    def restore(self, state: Tensor) -> None:
        torch.set_rng_state(state)


def _torch_remat(function: Callable[..., Any], *args: Any) -> Any:
    remat = importlib.import_module("torch_remat")  # mypy must not need it to be installed
    return remat.checkpoint(recompute_state_hooks=(_RandomState(),))(function)(*args)


def _save_on_cpu(net: Net) -> Net:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        with torch.autograd.graph.save_on_cpu():
            return net.loss(model, batch)

    return replace(net, loss=loss)


def _compiled(backend: str, budget: str) -> dict[str, Any]:
    def change(net: Net) -> Net:
        def make() -> nn.Module:
            model: Any = torch.compile(net.make(), backend=backend)
            return model  # type: ignore[no-any-return]

        return replace(net, make=make)

    @contextlib.contextmanager
    def around() -> Iterator[None]:
        torch._dynamo.reset()
        counters.clear()
        try:
            with functorch_config.patch(activation_memory_budget=float(budget)):
                yield
        finally:
            torch._dynamo.reset()

    return {"change": change, "around": around, "note": _uncompiled}


def _uncompiled() -> str:
    """Frames that the compiler left to eager mode since its counters were cleared."""
    total, compiled = counters["frames"]["total"], counters["frames"]["ok"]
    if total == compiled:
        return ""
    reasons = [reason.partition("\n")[0] for reason in counters["graph_break"]]
    return f"compiles {compiled} of {total} frames" + "".join(f"; {why}" for why in reasons)


ALTERNATIVES = (
    Alternative("checkpoint-block", _blocks(_PLAIN)),
    Alternative("checkpoint-sqrt", _blocks(_PLAIN, None)),
    Alternative("selective", _blocks(_SELECTIVE)),
    Alternative("torch-remat", _blocks(_torch_remat), needs="torch_remat"),
    Alternative(
        "save-on-cpu",
        _save_on_cpu,
        note=lambda: "moves saved tensors to the CPU, where they already are",
    ),
    *(
        Alternative(f"compile-{budget}", **_compiled("aot_eager_decomp_partition", budget))
        for budget in _BUDGETS
    ),
    *(
        Alternative(f"inductor-{budget}", **_compiled("inductor", budget), by_default=False)
        for budget in _BUDGETS
    ),
)


def alternatives_named(names: list[str]) -> list[Alternative]:
    """`all` and `none` must stand alone. Raises ValueError that lists the valid names."""
    if names == ["none"]:
        return []
    if names == ["all"]:
        return [alternative for alternative in ALTERNATIVES if alternative.by_default]
    known = {alternative.name: alternative for alternative in ALTERNATIVES}
    for name in names:
        if name not in known:
            raise ValueError(
                f"unknown alternative {name!r}; the alternatives are all, none, {', '.join(known)}"
            )
    return [known[name] for name in names]


def installed(alternative: Alternative) -> bool:
    return not alternative.needs or importlib.util.find_spec(alternative.needs) is not None
