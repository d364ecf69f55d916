"""Properties of a compiled graph that must be known before it runs, read from its source code."""

import ast
import types
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from recoup import _C


class Plan(NamedTuple):
    """How calls of one graph are run."""

    why_opaque: str
    """Why its ops must be intercepted one by one; empty if they need not be."""
    why_once: str
    """Why it cannot be replayed; empty if it can."""
    mutated: frozenset[int]
    """Indices of inputs that the graph changes, according to its own metadata."""
    donated: frozenset[int]
    """Indices of inputs whose memory it uses for its results."""
    constants: tuple[torch.Tensor, ...]
    """Tensors that it reads and that are no inputs."""


_plans: dict[int, tuple["weakref.ref[Any]", Plan]] = {}


def plan_of(graph: Any, count: int) -> Plan:
    """The plan of a graph with `count` inputs; made once. Compiled graphs are not hashable."""
    key = id(graph)
    known = _plans.get(key)
    if known is None or known[0]() is not graph:
        plan = _make(graph, count)
        known = _plans[key] = (weakref.ref(graph, lambda _: _plans.pop(key, None)), plan)
    return known[1]


def forget_plans() -> None:
    """Discards all plans, because traits of ops have changed."""
    _plans.clear()


def name_of(graph: Any) -> str:
    """The graph's name in messages."""
    settings = getattr(graph, "fx_kwargs", None) or {}
    kind = "backward" if settings.get("is_backward") else "forward"
    number = settings.get("graph_id")
    return f"graph {number}, {kind}" if number is not None else kind


def _make(graph: Any, count: int) -> Plan:
    mutated = frozenset(graph.mutated_input_idxs)

    def opaque(why: str) -> Plan:
        return Plan(why, "", mutated, frozenset(), ())

    text = str(graph.source_code or "")
    source = _Source(text)
    if source.arguments is None or len(source.arguments) != count:
        return opaque("its program is not Python code, so recoup cannot read what it does")
    on_gpu = any(device != "cpu" for device in graph.device_types)
    for op in sorted(source.ops):
        if _C.is_foreign_op(op, on_gpu):
            return opaque(f"it calls {op}, which may use other tensors")
    for name in sorted(source.externs):
        if not _is_of_torch(name, on_gpu):
            return opaque(f"it calls {name}, which may use other tensors")
    names = _globals_of(graph)
    if names is None:
        return opaque("recoup cannot find its constants in this version of PyTorch")
    constants = tuple(each for each in names.values() if isinstance(each, torch.Tensor))
    why_once = ""
    if "atomic_add" in text:
        why_once = "it adds in an order that differs between runs (atomic_add)"
    return Plan("", why_once, mutated, source.donated(), constants)


def _globals_of(graph: Any) -> dict[str, Any] | None:
    runner = graph.compiled_fn_runner
    call = getattr(type(runner), "call", None) if runner is not None else None
    return getattr(call, "__globals__", None)


def _is_of_torch(name: str, on_gpu: bool) -> bool:
    """Whether PyTorch made this member of `extern_kernels` from its own ops."""
    from torch._inductor.select_algorithm import extern_kernels

    kernel = getattr(extern_kernels, name, None)
    if isinstance(kernel, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        op = kernel._schema.name if isinstance(kernel, torch._ops.OpOverload) else str(kernel)
        return not _C.is_foreign_op(op.replace(".", "::"), on_gpu)
    if isinstance(kernel, types.BuiltinFunctionType):
        return True
    return str(getattr(kernel, "__module__", "")).partition(".")[0] == "torch"


class _Source:
    """The Python source code of a graph."""

    def __init__(self, text: str) -> None:
        self.arguments: list[str] | None = None
        """Names of its inputs, in order; None if they were not found."""
        self.ops: set[str] = set()
        """Ops that it calls by name: 'ns::name'."""
        self.externs: set[str] = set()
        """Members of `extern_kernels` that it uses."""
        try:
            self._tree = ast.parse(text)
        except SyntaxError:
            return
        for node in ast.walk(self._tree):
            if isinstance(node, ast.FunctionDef) and node.name == "call":
                self.arguments = list(_unpacked(node))
        aliases = dict(self._namespaces())
        for node in ast.walk(self._tree):
            self._note(_dotted(node), aliases)

    def _namespaces(self) -> Iterator[tuple[str, str]]:
        """Aliases of op namespaces, such as `aten = torch.ops.aten`."""
        for node in self._tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                path = _dotted(node.value)
                if path[:2] == ["torch", "ops"] and len(path) == 3:
                    yield node.targets[0].id, path[2]

    def _note(self, path: list[str], aliases: dict[str, str]) -> None:
        if path[:2] == ["torch", "ops"] and len(path) >= 4:
            self.ops.add(f"{path[2]}::{path[3]}")
        elif len(path) >= 2 and path[0] in aliases:
            self.ops.add(f"{aliases[path[0]]}::{path[1]}")
        elif len(path) == 2 and path[0] == "extern_kernels":
            self.externs.add(path[1])

    def donated(self) -> frozenset[int]:
        """Inputs that are assigned to a result's name: `buf = primals_2`, or a view of it."""
        assert self.arguments is not None
        places = {name: i for i, name in enumerate(self.arguments)}
        found = set()
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                value = node.value
                if isinstance(value, ast.Call) and value.args:
                    value = (
                        value.args[0] if _dotted(value.func) == ["reinterpret_tensor"] else value
                    )
                if isinstance(value, ast.Name) and value.id in places:
                    found.add(places[value.id])
        return frozenset(found)


def _unpacked(call: ast.FunctionDef) -> Iterator[str]:
    """The names in `a, b = args`, at the beginning of the function."""
    last = call.args.args[-1].arg if call.args.args else ""
    for node in call.body:
        if isinstance(node, ast.Assign) and _dotted(node.value) == [last]:
            target = node.targets[0]
            if isinstance(target, (ast.Tuple, ast.List)):
                yield from (each.id for each in target.elts if isinstance(each, ast.Name))
            return


def _dotted(node: ast.AST) -> list[str]:
    """The parts of `a.b.c`; empty for any other node."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return [node.id, *reversed(parts)] if isinstance(node, ast.Name) else []
