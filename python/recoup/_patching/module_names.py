"""Names of modules, optimizers and their tensors, while a run attributes memory to them.

No module gets a hook: some choose another code path, with other bits, when they have one. Instead
`Module.__call__` is replaced while a run needs it, and ops inside are attributed to the module: see
makers.h.
"""

import contextlib
import functools
import itertools
import sys
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch.optim import Optimizer, optimizer
from torch.utils.hooks import RemovableHandle

from recoup import _C
from recoup._patching.patches import Patches, Replacement

_T = TypeVar("_T")


class ModuleName(NamedTuple):
    """The name of a module, or of an optimizer, which has no path."""

    root: int
    """Number of the outermost module to which it belongs."""
    path: str
    """Qualified name within the outermost module; empty for that module itself."""
    kind: str
    """Class of the outermost module."""


class TensorName(NamedTuple):
    """The name of a tensor that a module or an optimizer holds."""

    module: int
    """Number of the module that holds the tensor or its parameter."""
    name: str
    """Qualified name of the parameter or buffer; for optimizer state also its key."""
    kind: str
    """'parameters', 'buffers', 'gradients' or 'optimizer'."""


class _Numbers(Generic[_T]):
    """Numbers for names, in order of first use. Names are never removed."""

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
# Numbers of outermost modules that were collected, by class, for reuse: a loop that makes one in
# each iteration makes no new names.
_free_roots: defaultdict[str, list[int]] = defaultdict(list)
# Names by the id of a module or optimizer, whose class may have no hash: a weak reference, so that
# another object at the same address is not mistaken for it, and its number.
_known: dict[int, tuple[weakref.ref[Any], int]] = {}
# Outermost modules by their root number: those that were called outside of any known module.
_tops: dict[int, weakref.ref[torch.nn.Module]] = {}
# Called with each module and its number before the module runs.
_listeners: list[Callable[[torch.nn.Module, int], None]] = []


class _Thread(threading.local):
    inside: int | None = None
    """Number of the module that the thread is in."""
    steps: dict[int, tuple[int, CodeType]] | None = None
    """Optimizers whose steps the thread is in: the depth before, and the code around the step."""


_thread = _Thread()

# Note [Naming runs no code of the program]
# A class may compute its attributes, draw random numbers when it lists its contents, or intercept
# access to a tensor's attributes. So names are taken from the dictionaries of modules and
# optimizers, and tensors are accessed while `__torch_function__` and modes are disabled.


def _class_name(thing: object) -> str:
    return str(type.__dict__["__name__"].__get__(type(thing)))


def _held_by(module: object, name: str) -> dict[str, Any]:
    """The module's dictionary `_modules`, `_parameters` or `_buffers`."""
    held = _attributes_of(module).get(name)
    return held if isinstance(held, dict) else {}


def _attributes_of(thing: object) -> dict[str, Any]:
    try:
        own: dict[str, Any] = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return {}
    return own


def _is_module(thing: object) -> bool:
    return issubclass(type(thing), torch.nn.Module)


def _all_in(top: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """The module and its submodules with their paths, as `named_modules` lists them."""
    seen = {id(top)}
    left: list[tuple[str, torch.nn.Module]] = [("", top)]
    while left:
        path, module = left.pop()
        yield path, module
        inner = []
        for name, child in _held_by(module, "_modules").items():
            if isinstance(name, str) and _is_module(child) and id(child) not in seen:
                seen.add(id(child))
                inner.append((f"{path}.{name}" if path else name, child))
        left += reversed(inner)


def _number_of(thing: Any) -> int:
    known = _known.get(id(thing))
    if known is not None and known[0]() is thing:
        return known[1]
    if not _is_module(thing):
        return _remember(thing, ModuleName(_new_root(thing), "", _class_name(thing)))
    if _thread.inside is None:
        return _learn(thing)
    # A module made inside another one is named by its class there.
    outer = MODULES[_thread.inside]
    path = f"{outer.path}.{_class_name(thing)}" if outer.path else _class_name(thing)
    return _remember(thing, outer._replace(path=path))


def _new_root(thing: object) -> int:
    kind = _class_name(thing)
    root = _free_roots[kind].pop() if _free_roots[kind] else next(_roots)
    with contextlib.suppress(TypeError):
        weakref.finalize(thing, _free_roots[kind].append, root).atexit = False
    return root


def _remember(thing: Any, name: ModuleName) -> int:
    number, key = MODULES.of(name), id(thing)
    with contextlib.suppress(TypeError):  # a class without weak references is named each time
        _known[key] = (weakref.ref(thing, lambda _: _known.pop(key, None)), number)
    return number


def _learn(top: torch.nn.Module) -> int:
    """Names a module that is called outside of all known modules, and its submodules."""
    root, kind = _new_root(top), _class_name(top)
    with contextlib.suppress(TypeError):
        _tops[root] = weakref.ref(top, lambda _: _tops.pop(root, None))
    for path, module in _all_in(top):
        before = _known.get(id(module))
        if before is not None and before[0]() is module and not MODULES[before[1]].path:
            _tops.pop(MODULES[before[1]].root, None)  # it was an outermost module before
        _remember(module, ModuleName(root, path, kind))
    return MODULES.of(ModuleName(root, "", kind))


def _calling(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def wrapper(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if _thread.steps:
            _leave_failed_steps()
        before, _thread.inside = _thread.inside, _number_of(self)
        for listener in _listeners:
            listener(self, _thread.inside)
        depth = _C.enter_module(_thread.inside)
        try:
            return original(self, *args, **kwargs)
        finally:
            _C.leave_module(depth)
            _thread.inside = before

    return wrapper


PATCHES = Patches([Replacement(torch.nn.Module, "__call__", _calling, runs_program=True)])
"""Installed while a run attributes memory to modules."""


def enter() -> None:
    """Resets the thread's state at the beginning of a scope, as an interrupt may have left some."""
    _C.leave_module(0)
    _thread.inside = _thread.steps = None


def current() -> int | None:
    """Number of the module that this thread is in; None: it is in none."""
    return _thread.inside


def listen(listener: Callable[[torch.nn.Module, int], None]) -> None:
    """Calls `listener` with each module and its number before it runs, until `stop_listening`."""
    _listeners.append(listener)


def stop_listening(listener: Callable[[torch.nn.Module, int], None]) -> None:
    """Ends `listen`, if it has begun."""
    _listeners[:] = [each for each in _listeners if each != listener]


def own_tensors(module: torch.nn.Module) -> list[torch.Tensor]:
    """The parameters and buffers of a module without those of its submodules."""
    return [tensor for _, _, tensor in _own_tensors(module)]


def _own_tensors(module: torch.nn.Module) -> Iterator[tuple[str, str, torch.Tensor]]:
    """Kind, name and tensor of each parameter and buffer of the module itself."""
    for kind in ("parameters", "buffers"):
        for name, tensor in _held_by(module, f"_{kind}").items():
            if issubclass(type(tensor), torch.Tensor):
                yield kind, str(name), tensor


def tensors() -> list[tuple[torch.Tensor, int]]:
    """Tensors of all modules that were called, with the numbers of their names."""
    found: dict[int, tuple[torch.Tensor, int]] = {}  # a tensor with several names has the first
    with torch._C.DisableTorchFunction():
        for root, top in list(_tops.items()):
            outermost = top()
            for path, module in () if outermost is None else _all_in(outermost):
                owner = MODULES.of(ModuleName(root, path, _class_name(outermost)))
                for tensor, number in _tensors_of(module, path, owner):
                    found.setdefault(id(tensor), (tensor, number))
    return list(found.values())


def _tensors_of(
    module: torch.nn.Module, path: str, owner: int
) -> Iterator[tuple[torch.Tensor, int]]:
    for kind, own_name, tensor in _own_tensors(module):
        name = f"{path}.{own_name}" if path else own_name
        yield tensor, TENSORS.of(TensorName(owner, name, kind))
        # `grad` of a tensor that is no leaf of autograd warns.
        if kind == "parameters" and tensor.is_leaf and tensor.grad is not None:
            yield tensor.grad, TENSORS.of(TensorName(owner, name, "gradients"))


def state_of(stepped: Optimizer) -> list[tuple[torch.Tensor, int]]:
    """Tensors that an optimizer keeps for each parameter, with the numbers of their names."""
    names = {id(tensor): TENSORS[number] for tensor, number in tensors()}
    own = _number_of(stepped)
    groups = _attributes_of(stepped).get("param_groups", [])
    places = {id(parameter): place for place, parameter in places_in(groups)}
    found: list[tuple[torch.Tensor, int]] = []
    for parameter, state in _held_by(stepped, "state").items():
        place = places.get(id(parameter), "state")
        of = names.get(id(parameter), TensorName(own, place, "parameters"))
        for key, tensor in state.items() if isinstance(state, dict) else ():
            if issubclass(type(tensor), torch.Tensor):
                name = TensorName(of.module, f"{of.name}.{key}", "optimizer")
                found.append((tensor, TENSORS.of(name)))
    return found


def places_in(param_groups: list[dict[str, Any]]) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters of an optimizer with their places, which name parameters of no module."""
    for group, settings in enumerate(param_groups):
        for index, parameter in enumerate(settings["params"]):
            yield f"param_groups.{group}.{index}", parameter


def _leave_failed_steps() -> None:
    """Ends failed steps, which no hook reports: the code around them is no longer on the stack."""
    running = set()
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        running.add(frame.f_code)
        frame = frame.f_back
    steps = _thread.steps or {}
    for key, (depth, code) in list(steps.items()):
        if code not in running:
            del steps[key]
            _C.leave_module(depth)


class StepHooks:
    """Attributes ops to the optimizer whose step runs; calls `before` and `after` around it."""

    def __init__(
        self, before: Callable[[Optimizer], None], after: Callable[[Optimizer], None]
    ) -> None:
        self._before, self._after = before, after
        self._handles: list[RemovableHandle] = []

    def add(self) -> None:
        # As in step_marks.py: the handle is stored before its hook is active.
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
        _leave_failed_steps()
        _leave_step(stepped)
        self._before(stepped)
        if _thread.steps is None:
            _thread.steps = {}
        depth = _C.enter_module(_number_of(stepped), optimizer=True)
        _thread.steps[id(stepped)] = (depth, sys._getframe(1).f_code)

    def _end(self, stepped: Optimizer, *_: object) -> None:
        _leave_step(stepped)
        self._after(stepped)


def _leave_step(stepped: Optimizer) -> None:
    steps = _thread.steps
    if steps and id(stepped) in steps:
        _C.leave_module(steps.pop(id(stepped))[0])
