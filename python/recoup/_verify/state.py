"""What a program holds after a step of an optimizer: names, digests, and the tensors themselves."""

import pickle
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from recoup._patching import module_names
from recoup._patching.patches import Patches, Replacement
from recoup._verify.bits import digest, digest_of_bytes, has_storage
from recoup._verify.stream import KINDS, Item

_KIND_OF = {
    "buffers": "buffer",
    "gradients": "gradient",
    "parameters": "parameter",
    "optimizer": "optimizer state",
}


class Watch:
    """Follows the modules and losses of the program from `start` to `stop`."""

    def __init__(self) -> None:
        self._losses: list[Item] = []
        self._first_states: dict[str, str] = {}
        self._patches = Patches([Replacement(torch.autograd, "backward", self._backward)])

    def start(self) -> None:
        """Begins to follow. `Tensor.backward` calls the function that is replaced here."""
        self._first_states = _generator_states()
        module_names.PATCHES.install(self)
        self._patches.install(self)

    def stop(self) -> None:
        """Restores what `start` has replaced."""
        self._patches.remove(self)
        module_names.PATCHES.remove(self)

    def skip_step(self) -> None:
        """Begins the next step without an account of the one that ended."""
        self._losses.clear()

    def items(self, optimizer: Optimizer) -> list[tuple[Item, Tensor | None]]:
        """The items after a step of `optimizer`, with their tensors, in the order of a step."""
        found: list[tuple[Item, Tensor | None]] = [(loss, None) for loss in self._losses]
        self._losses.clear()
        found += _held(optimizer)
        found += [(item, None) for item in self._generators()]
        # A backward pass computes the gradients of the last modules first.
        order = {kind: place for place, kind in enumerate(KINDS)}
        gradients = [one for one in found if one[0].kind == "gradient"][::-1]
        others = [one for one in found if one[0].kind != "gradient"]
        return sorted(others + gradients, key=lambda one: order[one[0].kind])

    def _generators(self) -> Iterator[Item]:
        for name, state in _generator_states().items():
            # Python seeds its generator from the system: until it is used, its state means nothing.
            bits = "unused" if self._first_states.get(name) == state else state
            yield Item("generator", "", name, "state", (), bits)

    def _backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            for loss in (tensors,) if isinstance(tensors, Tensor) else tensors:
                if isinstance(loss, Tensor):
                    name = str(len(self._losses))
                    self._losses.append(_item("loss", "", name, loss))
            return original(tensors, *args, **kwargs)

        return backward


def _held(optimizer: Optimizer) -> Iterator[tuple[Item, Tensor]]:
    """Tensors of the modules that were called, and of the optimizer."""
    seen: set[int] = set()
    for tensor, number in [*module_names.tensors(), *module_names.state_of(optimizer)]:
        name = module_names.TENSORS[number]
        seen.add(id(tensor))
        yield _item(_KIND_OF[name.kind], _owner(name.module), name.name, tensor), tensor
    # Parameters of no module.
    for group, settings in enumerate(optimizer.param_groups):
        for index, parameter in enumerate(settings["params"]):
            name_in_group = f"param_groups.{group}.{index}"
            for kind, tensor in (("parameter", parameter), ("gradient", parameter.grad)):
                if tensor is not None and id(tensor) not in seen:
                    owner = type(optimizer).__name__
                    yield _item(kind, owner, name_in_group, tensor), tensor


def _owner(module: int) -> str:
    name = module_names.MODULES[module]
    return f"{name.kind}#{name.root}"


def _item(kind: str, owner: str, name: str, tensor: Tensor) -> Item:
    value = ""
    if tensor.numel() == 1 and tensor.is_floating_point() and has_storage(tensor):
        with torch.no_grad():
            value = repr(tensor.detach().item())
    return Item(kind, owner, name, str(tensor.dtype), tuple(tensor.shape), digest(tensor), value)


def _generator_states() -> dict[str, str]:
    """Digests of the states of the random generators that a program uses without naming one."""
    states = {
        "torch": torch.get_rng_state().numpy().tobytes(),
        "random": _pickled(random.getstate()),
    }
    if numpy := sys.modules.get("numpy"):
        states["numpy"] = _pickled(numpy.random.get_state())
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        for index, state in enumerate(torch.cuda.get_rng_state_all()):
            states[f"cuda:{index}"] = state.numpy().tobytes()
    return {name: digest_of_bytes(state) for name, state in states.items()}


def _pickled(state: object) -> bytes:
    return pickle.dumps(state, protocol=4)
