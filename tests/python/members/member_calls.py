"""One call of a PyTorch function that is not an op: in plain PyTorch, and in a budget.

If plain PyTorch accepts the arguments, the call in a budget has the same result, also after
everything was evicted again; or it raises recoup's error, which only storages and functions of
`torch._C` may do.
"""

import copy
import ctypes
import functools
import io
import re
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.jit._script

import recoup
from differential import see

LITTER = 20
REPEATS = 8
FILE = Path("file")
ZIP = b"PK\3\4"
# Raises the error that a function in C has set although it returned a result.
raise_error_that_is_set = ctypes.pythonapi.PyErr_Occurred

# Few elements, because error messages print them.
SIDE = 8
N = SIDE * SIDE


def made(scale: float = 1.0) -> torch.Tensor:
    return torch.linspace(-1, 1, N).mul(scale)


@functools.cache
def _script() -> Any:
    return torch.jit.script(torch.nn.Linear(SIDE, SIDE))


@functools.cache
def _graph() -> Any:
    constant = made()
    return torch.jit.trace(lambda x: x * constant, torch.ones(N)).graph


class Things:
    """The arguments of one call; the tensors in `evictable` can be evicted."""

    def __init__(self) -> None:
        self.tensor, self.other = made(), made(2)
        # Integers as well: they serve as indices, sizes and elements.
        self.scalars = [made(5)[SIDE] * 1, made(7)[SIDE] * 1]
        self.integers = [self.tensor[SIDE].mul(0).long() + i for i in (1, 2)]
        self.generator = torch.Generator().manual_seed(5)
        self.evictable = [self.tensor, self.other, *self.scalars, *self.integers]
        self.storage, self.second = (each.untyped_storage() for each in self.evictable[:2])
        self.typed, self.typed_second = map(_typed, (self.storage, self.second))

    @functools.cached_property
    def script(self) -> Any:
        weight = made(3).reshape(SIDE, SIDE)
        script = copy.deepcopy(_script())
        script.weight = torch.nn.Parameter(weight)
        self.evictable.append(weight)
        return script

    @functools.cached_property
    def state(self) -> torch.Tensor:
        """The state of another generator."""
        self.made_from = torch.Generator().manual_seed(3).get_state()
        state = self.made_from.clone()
        self.evictable.append(state)
        return state

    @functools.cached_property
    def graph(self) -> Any:
        graph = _graph().copy()
        for node in graph.findAllNodes("prim::Constant"):
            node.t_("value", self.tensor)
        return graph


def _typed(storage: torch.UntypedStorage) -> torch.TypedStorage:
    return torch.TypedStorage(wrap_storage=storage, dtype=torch.float32, _internal=True)


def first(*arguments: Any) -> Any:
    return arguments[0]


Arguments = Callable[[Things], tuple[Any, ...]]

PLAIN: dict[str, Arguments] = {
    "()": lambda t: (),
    "(0)": lambda t: (0,),
    "(8)": lambda t: (8,),
    "(0, 1)": lambda t: (0, 1),
    "(None)": lambda t: (None,),
    "({})": lambda t: ({},),
    "(dtype)": lambda t: (torch.float32,),
    "(file)": lambda t: (str(FILE),),
}
OF_TENSORS: dict[str, Arguments] = PLAIN | {
    "(tensor)": lambda t: (t.other,),
    "(tensor, 0)": lambda t: (t.other, 0),
    "(0, tensor)": lambda t: (0, t.other),
    # Python reads these element by element.
    "(scalars)": lambda t: (t.scalars,),
    "(nested scalars)": lambda t: ([t.scalars, tuple(t.scalars)],),
    "(mixed scalars)": lambda t: ([t.scalars[0], 1.5, t.integers[0]],),
    "(integers)": lambda t: (t.integers,),
    "(integers, scalars)": lambda t: ([t.integers], t.scalars),
    "(tensors)": lambda t: ([t.tensor, t.other],),
    "(tensor, integers)": lambda t: (t.other, t.integers),
    "(scalar)": lambda t: (t.scalars[0],),
    "(integer)": lambda t: (t.integers[0],),
    "(tensor, scalar)": lambda t: (t.other, t.scalars[0]),
    "(tensor, integer, integer)": lambda t: (t.other, *t.integers),
    "(storage)": lambda t: (t.storage,),
    "(typed)": lambda t: (t.typed,),
    "(function)": lambda t: (first,),
    "(tensor, function)": lambda t: (t.other, first),
    "(tensor, tensor, function)": lambda t: (t.other, t.other, first),
}
OF_STORAGES: dict[str, Arguments] = PLAIN | {
    "(storage)": lambda t: (t.second,),
    "(typed)": lambda t: (t.typed_second,),
}
OF_GENERATORS: dict[str, Arguments] = PLAIN | {
    "(state)": lambda t: (t.state,),
    "((seed, offset, state))": lambda t: ((0, None, t.state),),
    "(generator)": lambda t: (torch.Generator(),),
}
OF_FUNCTIONS: dict[str, Arguments] = {
    "(tensor)": lambda t: (t.tensor,),
    "(tensor, tensor)": lambda t: (t.tensor, t.other),
    "(tensor, tensor, tensor)": lambda t: (t.tensor, t.other, t.tensor),
    "(tensor, 0)": lambda t: (t.tensor, 0),
    "(0, tensor)": lambda t: (0, t.tensor),
    "(name, tensor)": lambda t: ("name", t.tensor),
    "(list)": lambda t: ([t.tensor, t.other],),
    "(lists)": lambda t: ([[t.tensor, t.other]],),
    "(dict)": lambda t: ({"name": t.tensor},),
    "(dict, file)": lambda t: ({"name": t.tensor}, str(FILE)),
    "(dict, file, True)": lambda t: ({"name": t.tensor}, str(FILE), True),
    "(storage)": lambda t: (t.storage,),
    "(storage, storage)": lambda t: (t.storage, t.second),
    "(storage, 0)": lambda t: (t.storage, 0),
    "(typed)": lambda t: (t.typed,),
    "(script)": lambda t: (t.script._c,),
    "(script, {})": lambda t: (t.script._c, {}),
    "(script, file)": lambda t: (t.script._c, str(FILE)),
    "(script, file, {})": lambda t: (t.script._c, str(FILE), {}),
    "(graph)": lambda t: (t.graph,),
}


@dataclass(frozen=True)
class Owner:
    """An object that has the members, and the argument lists to call them with."""

    get: Callable[[Things], Any]
    forms: dict[str, Arguments]


OWNERS = {
    "Tensor": Owner(lambda t: t.tensor, OF_TENSORS),
    "UntypedStorage": Owner(lambda t: t.storage, OF_STORAGES),
    "TypedStorage": Owner(lambda t: t.typed, OF_STORAGES),
    "RecursiveScriptModule": Owner(lambda t: t.script, PLAIN),
    "Generator": Owner(lambda t: t.generator, OF_GENERATORS),
    "torch": Owner(lambda t: torch, OF_TENSORS),
    "torch._C": Owner(lambda t: torch._C, OF_FUNCTIONS),
}


def seen(thing: Any) -> list[Any]:
    """Everything that a program can see of a result, except for addresses."""
    match thing:
        case torch.UntypedStorage():
            return see(torch.empty(0, dtype=torch.uint8).set_(thing))  # type: ignore[call-overload]
        case torch.TypedStorage():
            return seen(thing._untyped_storage)
        case torch.Tensor():
            return see(thing)
        case np.ndarray():
            return [thing.tobytes()]
        case io.BytesIO():
            return [thing.getvalue()]
        case bytes() if thing.startswith(ZIP):
            # The rest depends on reference counts.
            with zipfile.ZipFile(io.BytesIO(thing)) as file:
                return [file.read(name) for name in file.namelist() if "/data/" in name]
        case torch.Generator():
            return seen(thing.get_state())
        case torch.nn.Module():
            return seen([*thing.parameters(), *thing.buffers()])
        case dict():
            return seen([*thing, *thing.values()])
        case list() | tuple():
            return [leaf for part in thing for leaf in seen(part)]
        case _:
            return [type(thing).__name__, re.sub("0x[0-9a-f]+", "0x", repr(thing))]


class Call:
    """One call of a member."""

    def __init__(self, owner: Owner, name: str, form: str, things: Things) -> None:
        FILE.unlink(missing_ok=True)
        torch.default_generator.manual_seed(0)
        self.things = things
        self._whose = owner.get(self.things)
        self._name = name
        self._arguments = owner.forms[form](self.things)
        self.error: Exception | None = None
        self.result: Any = None

    def run(self) -> "Call":
        try:
            member = getattr(self._whose, self._name)
            if callable(member):
                self.result = member(*self._arguments)
                raise_error_that_is_set()
            elif self._arguments:
                raise TypeError("it takes no arguments")
            else:
                self.result = member
        except Exception as error:
            self.error = error
        return self

    def outcome(self) -> list[Any]:
        """The result and the arguments after the call; or the class of its error."""
        if self.error is not None:
            return ["raised", type(self.error).__name__]
        written = FILE.read_bytes() if FILE.exists() else b""
        things = self.things
        left = [things.tensor, things.other, things.storage, things.generator]
        return seen([self.result, *left, written])

    def is_pointer(self) -> bool:
        return type(self.result) is int and self.result == self.things.tensor.data_ptr()


# The index in the outcome, or -1, and a description.
Difference = tuple[int, str]


@dataclass
class Expected:
    """The result of plain PyTorch."""

    pointer: bool
    outcome: list[Any]


# Kept for reuse: making them takes most of the time.
_spare: list[Things] = []


def wrong(owner: Owner, name: str, form: str, tell: Callable[[str], None]) -> list[str] | None:
    """Differences from plain PyTorch; None if plain PyTorch does not accept the arguments."""
    call = Call(owner, name, form, _spare.pop() if _spare else Things()).run()
    if isinstance(call.error, TypeError):
        _spare.append(call.things)
        return None
    expected = Expected(call.is_pointer(), call.outcome())
    tell("watched")
    with recoup.budget("64MiB", options=recoup.Options(small_result_bytes=0)) as run:
        found = [
            (place, f"{form}, {how}: {text}")
            for how in ("resident", "evicted")
            for place, text in differences(owner, Call(owner, name, form, Things()), how, expected)
        ]
        run.check()
    varying = varying_places(owner, name, form, expected) if found else set()
    return [text for place, text in found if place not in varying]


def varying_places(owner: Owner, name: str, form: str, expected: Expected) -> set[int]:
    """Indices at which plain PyTorch's results depend on the content of free memory."""
    varying = set()
    for i in range(REPEATS):
        litter = [torch.full((2**k,), 0.7 * i * k) for k in range(12)]
        del litter
        again = Call(owner, name, form, Things()).run().outcome()
        pairs = enumerate(zip(expected.outcome, again, strict=False))
        varying |= {place for place, (a, b) in pairs if a != b}
    return varying


def differences(owner: Owner, call: Call, how: str, expected: Expected) -> Iterator[Difference]:
    if how == "evicted":
        assert all([recoup.evict(tensor) for tensor in call.things.evictable])
    call.run()
    if expected.pointer and recoup.evict(call.things.tensor):
        yield -1, "it gave an address, and the bytes were evicted"
    yield from compared("", expected, call.outcome())
    for tensor in call.things.evictable:
        recoup.evict(tensor)
    litter = [torch.full((N,), float(i)) for i in range(LITTER)]
    del litter
    yield from compared("later ", expected, call.outcome())


def compared(when: str, expected: Expected, got: list[Any]) -> Iterator[Difference]:
    if len(expected.outcome) != len(got):
        yield -1, f"{when}{str(expected.outcome)[:200]} in plain PyTorch, {str(got)[:200]} here"
        return
    for place, (a, b) in enumerate(zip(expected.outcome, got, strict=True)):
        if a != b:
            yield place, f"{when}{str(a)[:200]} in plain PyTorch, {str(b)[:200]} here"
