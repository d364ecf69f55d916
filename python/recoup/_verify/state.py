"""What a program holds after a step of an optimizer: names, digests, and the tensors themselves."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from recoup._patching import module_names
from recoup._patching.module_names import ModuleName
from recoup._patching.patches import Patches, Replacement
from recoup._verify.bits import digest, has_storage
from recoup._verify.generators import generator_states
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
        # Numbers of the modules that the run has called.
        self._called: set[int] = set()
        # Places of outermost modules by their numbers, for each class.
        self._places: defaultdict[str, dict[int, int]] = defaultdict(dict)

    def start(self) -> None:
        """Begins to follow. `Tensor.backward` calls the function that is replaced here."""
        self._first_states = generator_states()
        module_names.listen(self._note_call)
        module_names.PATCHES.install(self)
        _watches.append(self)
        PATCHES.install(self)

    def stop(self) -> None:
        """Restores what `start` has replaced."""
        PATCHES.remove(self)
        _watches[:] = [each for each in _watches if each is not self]
        module_names.PATCHES.remove(self)
        module_names.stop_listening(self._note_call)

    def _note_call(self, _: torch.nn.Module, number: int) -> None:
        self._called.add(number)

    def skip_step(self) -> None:
        """Begins the next step without an account of the one that ended."""
        self._losses.clear()

    def items(self, optimizer: Optimizer) -> list[tuple[Item, Tensor | None]]:
        """The items after a step of `optimizer`, with their tensors, in the order of a step."""
        found: list[tuple[Item, Tensor | None]] = [(loss, None) for loss in self._losses]
        self._losses.clear()
        found += self._held(optimizer)
        found += [(item, None) for item in self._generators()]
        # A backward pass computes the gradients of the last modules first.
        order = {kind: place for place, kind in enumerate(KINDS)}
        gradients = [one for one in found if one[0].kind == "gradient"][::-1]
        others = [one for one in found if one[0].kind != "gradient"]
        return sorted(others + gradients, key=lambda one: order[one[0].kind])

    def _held(self, optimizer: Optimizer) -> Iterator[tuple[Item, Tensor]]:
        """Tensors of the modules that the run has called, and of the optimizer."""
        called = {module_names.MODULES[number].root for number in self._called}
        modules = [
            (tensor, number)
            for tensor, number in module_names.tensors()
            if _module_of(number).root in called
        ]
        seen: set[int] = set()
        for tensor, number in [*modules, *module_names.state_of(optimizer)]:
            name = module_names.TENSORS[number]
            owner = self._owner(_module_of(number))
            seen.add(id(tensor))
            yield _item(_KIND_OF[name.kind], owner, name.name, tensor), tensor
        yield from _parameters_of_no_module(optimizer, seen)

    def _owner(self, module: ModuleName) -> str:
        """Class of the outermost module, and its place among those of this class in this run."""
        places = self._places[module.kind]
        return f"{module.kind}#{places.setdefault(module.root, len(places))}"

    def _generators(self) -> Iterator[Item]:
        for name, state in generator_states().items():
            # Python seeds its generator from the system: until it is used, its state means nothing.
            bits = "unused" if self._first_states.get(name) == state else state
            yield Item("generator", "", name, "state", (), bits)

    def add_losses(self, tensors: tuple[Any, ...]) -> None:
        """Notes the tensors on which `backward` is called."""
        for loss in tensors:
            if isinstance(loss, Tensor):
                self._losses.append(_item("loss", "", str(len(self._losses)), loss))


# Those that have started and not stopped.
_watches: list[Watch] = []


def _noting_losses(original: Callable[..., Any]) -> Callable[..., Any]:
    def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        # As PyTorch does. An iterator can be read only once.
        is_single = isinstance(tensors, Tensor | torch.autograd.graph.GradientEdge)
        tensors = (tensors,) if is_single else tuple(tensors)
        for watch in _watches:
            watch.add_losses(tensors)
        return original(tensors, *args, **kwargs)

    return backward


PATCHES = Patches([Replacement(torch.autograd, "backward", _noting_losses)])


def _module_of(tensor: int) -> ModuleName:
    return module_names.MODULES[module_names.TENSORS[tensor].module]


def _parameters_of_no_module(optimizer: Optimizer, seen: set[int]) -> Iterator[tuple[Item, Tensor]]:
    owner = type(optimizer).__name__
    for name, parameter in module_names.places_in(optimizer.param_groups):
        for kind, tensor in (("parameter", parameter), ("gradient", parameter.grad)):
            if tensor is not None and id(tensor) not in seen:
                yield _item(kind, owner, name, tensor), tensor


def _item(kind: str, owner: str, name: str, tensor: Tensor) -> Item:
    value = ""
    if tensor.numel() == 1 and tensor.is_floating_point() and has_storage(tensor):
        with torch.no_grad():
            value = repr(tensor.detach().item())
    return Item(kind, owner, name, str(tensor.dtype), tuple(tensor.shape), digest(tensor), value)
