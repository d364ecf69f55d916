"""What modules, optimizers and what they hold are called, while a run wants to know.

No hook is put on any module: some choose another path, and other bits, when they see one. Instead
`Module.__call__` is replaced while somebody asks, and what runs inside is said to be for the
module: see makers.h.
"""

import functools
import itertools
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch.optim import Optimizer, optimizer
from torch.utils.hooks import RemovableHandle

from recoup import _C
from recoup.patches import Patches, Replacement

_T = TypeVar("_T")


class ModuleName(NamedTuple):
    """A module, or an optimizer, which has no path."""

    root: int
    """Which of all outermost modules it belongs to."""
    path: str
    """Its qualified name there; empty for the outermost one."""
    kind: str
    """The class of the outermost one."""


class TensorName(NamedTuple):
    """What a module or an optimizer holds."""

    module: int
    """The number of the module that has it, or has the parameter that it is for."""
    name: str
    """The parameter's or buffer's qualified name; of an optimizer's state, that and its key."""
    kind: str
    """'parameters', 'buffers', 'gradients' or 'optimizer'."""


class _Numbers(Generic[_T]):
    """Numbers for names, in the order in which they came. Never fewer."""

    def __init__(self) -> None:
        self._numbers: dict[_T, int] = {}
        self._names: list[_T] = []

    def of(self, name: _T) -> int:
        found = self._numbers.get(name)
        if found is None:
            self._names.append(name)
            found = self._numbers[name] = len(self._names) - 1
        return found

    def __getitem__(self, number: int) -> _T:
        return self._names[number]


MODULES: _Numbers[ModuleName] = _Numbers()
TENSORS: _Numbers[TensorName] = _Numbers()

_roots = itertools.count()
# By the id of a module or an optimizer, which may be of a class without a hash: what it is, so that
# nothing else that comes to lie there is taken for it, and its number.
_known: dict[int, tuple[weakref.ref[Any], int]] = {}
# Those that were called first of all they are in: their number among roots, and what they are.
_tops: dict[int, weakref.ref[torch.nn.Module]] = {}


def _number_of(thing: Any) -> int:
    known = _known.get(id(thing))
    if known is not None and known[0]() is thing:
        return known[1]
    if isinstance(thing, torch.nn.Module):
        return _learn(thing)
    return _remember(thing, ModuleName(next(_roots), "", type(thing).__name__))


def _remember(thing: Any, name: ModuleName) -> int:
    number, key = MODULES.of(name), id(thing)
    _known[key] = (weakref.ref(thing, lambda _: _known.pop(key, None)), number)
    return number


def _learn(top: torch.nn.Module) -> int:
    """A module that is called and was in none that was called before, with all that is in it."""
    root, kind = next(_roots), type(top).__name__
    _tops[root] = weakref.ref(top, lambda _: _tops.pop(root, None))
    for path, module in _all_of(top.named_modules):
        before = _known.get(id(module))
        if before is not None and before[0]() is module and not MODULES[before[1]].path:
            _tops.pop(MODULES[before[1]].root, None)  # it was called alone before
        _remember(module, ModuleName(root, path, kind))
    return _remember(top, ModuleName(root, "", kind))


def _all_of(named: Callable[[], Iterable[tuple[str, _T]]]) -> list[tuple[str, _T]]:
    """What a module says that it holds; a class may not know, and a name is not worth an error."""
    try:
        return list(named())
    except Exception:
        return []


def _calling(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def wrapper(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        depth = _C.enter_module(_number_of(self))
        try:
            return original(self, *args, **kwargs)
        finally:
            _C.leave_module(depth)

    return wrapper


PATCHES = Patches([Replacement(torch.nn.Module, "__call__", _calling, runs_program=True)])
"""What to install while a run wants to know."""


def tensors() -> Iterator[tuple[torch.Tensor, int]]:
    """What the modules hold that were called, with the numbers of their names."""
    for root, top in list(_tops.items()):
        module = top()
        if module is None:
            continue
        for path, parameter in _all_of(module.named_parameters):
            yield parameter, _tensor_number(module, root, path, "parameters")
            if parameter.grad is not None:
                yield parameter.grad, _tensor_number(module, root, path, "gradients")
        for path, buffer in _all_of(module.named_buffers):
            yield buffer, _tensor_number(module, root, path, "buffers")


def _tensor_number(top: torch.nn.Module, root: int, path: str, kind: str) -> int:
    owner = ModuleName(root, path.rpartition(".")[0], type(top).__name__)
    return TENSORS.of(TensorName(MODULES.of(owner), path, kind))


def state_of(stepped: Optimizer) -> Iterator[tuple[torch.Tensor, int]]:
    """What an optimizer keeps for each parameter, with the numbers of their names."""
    names = {id(tensor): TENSORS[number] for tensor, number in tensors()}
    own = _number_of(stepped)
    for parameter, state in stepped.state.items():
        of = names.get(id(parameter), TensorName(own, "", "parameters"))
        for key, tensor in state.items() if isinstance(state, dict) else ():
            if isinstance(tensor, torch.Tensor):
                name = f"{of.name}.{key}" if of.name else str(key)
                yield tensor, TENSORS.of(TensorName(of.module, name, "optimizer"))


class StepHooks:
    """Says which optimizer's step runs, and calls `before` and `after` around it."""

    def __init__(
        self, before: Callable[[Optimizer], None], after: Callable[[Optimizer], None]
    ) -> None:
        self._before, self._after = before, after
        self._open = threading.local()
        self._handles: list[RemovableHandle] = []

    def add(self) -> None:
        # As in step_marks.py: a handle is known before its hook is in force.
        rows: tuple[tuple[Any, Any], ...] = (
            (optimizer._global_optimizer_pre_hooks, self._begin),
            (optimizer._global_optimizer_post_hooks, self._end),
        )
        for hooks, hook in rows:
            handle = RemovableHandle(hooks)
            self._handles.append(handle)
            hooks[handle.id] = hook

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _begin(self, stepped: Optimizer, *_: object) -> None:
        self._leave(stepped)  # of a step that failed nobody was told
        self._before(stepped)
        self._steps()[id(stepped)] = _C.enter_module(_number_of(stepped), optimizer=True)

    def _end(self, stepped: Optimizer, *_: object) -> None:
        self._leave(stepped)
        self._after(stepped)

    def _leave(self, stepped: Optimizer) -> None:
        steps = self._steps()
        if id(stepped) in steps:
            _C.leave_module(steps.pop(id(stepped)))

    def _steps(self) -> dict[int, int]:
        """The steps that this thread is in: how deep it was before each."""
        found: dict[int, int] | None = getattr(self._open, "steps", None)
        if found is None:
            found = self._open.steps = {}
        return found
