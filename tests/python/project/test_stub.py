"""The checked-in stub agrees with the built module."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[3] / "python"

Signature = tuple[str, ...]


@pytest.mark.parametrize("module", ["recoup._C", "recoup.offline._C"])
def test_stub_and_module_agree(tmp_path: Path, module: str) -> None:
    # Loads torch first, as recoup does; main() runs as in `pybind11-stubgen MODULE`.
    generate = "import torch, pybind11_stubgen; pybind11_stubgen.main()"
    subprocess.run(
        [sys.executable, "-c", generate, module, "-o", str(tmp_path), "--exit-code"],
        check=True,
        capture_output=True,
        text=True,
    )
    stub = Path(*module.split(".")).with_suffix(".pyi")
    assert interface((tmp_path / stub).read_text()) == interface((PACKAGE / stub).read_text())


def interface(source: str) -> dict[str, object]:
    """Names, parameters and types of a stub, without differences of formatting and notation."""
    return _members(ast.parse(source).body)


def _members(body: list[ast.stmt]) -> dict[str, object]:
    members: dict[str, object] = {}
    for node in body:
        match node:
            case ast.ClassDef():
                members[node.name] = _members(node.body)
            case ast.FunctionDef():
                members[node.name] = _signature(node)
            case ast.AnnAssign(target=ast.Name(id=name)):
                members[name] = _type(node.annotation)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=value)):
                members[name] = type(value).__name__
    # Names that the generator adds and that readers of a stub do not need.
    return {name: what for name, what in members.items() if name not in ("__all__", "__hash__")}


def _signature(node: ast.FunctionDef) -> Signature:
    arguments = node.args
    parts = [_parameter(a) for a in (*arguments.posonlyargs, *arguments.args)]
    if arguments.kwonlyargs:
        parts += ["*", *(_parameter(a) for a in arguments.kwonlyargs)]
    defaults = [*arguments.defaults, *(d for d in arguments.kw_defaults if d is not None)]
    parts += [f"={ast.unparse(default)}" for default in defaults]
    return (*parts, f"-> {_type(node.returns)}")


def _parameter(argument: ast.arg) -> str:
    # pybind11 names the first parameter of a method `self` and gives it no type.
    return argument.arg if argument.annotation is None else f"{argument.arg}: {_type(argument)}"


def _type(node: ast.expr | ast.arg | None) -> str:
    expression = node.annotation if isinstance(node, ast.arg) else node
    return "Any" if expression is None else ast.unparse(_PlainNames().visit(expression))


class _PlainNames(ast.NodeTransformer):
    """Replaces types by one notation: `typing.SupportsInt` and `int` are the same to a caller."""

    _SPELLINGS = {  # noqa: RUF012
        "SupportsInt": "int",
        "SupportsFloat": "float",
        "SupportsIndex": "int",
        "str_": "str",
        "StorageBase": "UntypedStorage",  # PyTorch's converter uses the old name
    }

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        return self.visit_Name(ast.Name(node.attr))

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Name(self._SPELLINGS.get(node.id, node.id))

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        container = self.visit(node.value)
        match container, node.slice:
            # pybind11 gives no type arguments for these.
            case ast.Name(id="dict" | "list" | "type"), _:
                return container
            case ast.Name(id="Annotated"), ast.Tuple(elts=[inner, *_]):
                return self.visit(inner)
            case ast.Name(id="Optional"), inner:
                return self.visit(ast.BinOp(inner, ast.BitOr(), ast.Constant(None)))
        return ast.Subscript(container, self.visit(node.slice))

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        # Sorts a union and removes duplicates: `SupportsInt | SupportsIndex` is `int`.
        names = {ast.unparse(member) for member in self._members(node)}
        if "float" in names:
            names -= {"int"}
        return ast.Name(" | ".join(sorted(names)))

    def _members(self, node: ast.expr) -> list[ast.expr]:
        if isinstance(node, ast.BinOp):
            return [*self._members(node.left), *self._members(node.right)]
        return [self.visit(node)]


def test_interface_detects_differences_that_matter() -> None:
    generated = """
from __future__ import annotations
import torch
import typing
__all__: list[str] = ['f']
class C:
    '''Doc.'''
    def __init__(self, *, a: typing.SupportsInt | typing.SupportsIndex, b: bool | None) -> None:
        ...
def f(tensor: torch.Tensor) -> dict[str, typing.Any]:
    ...
__version__: str = '0.1.0'
"""
    written = """
from typing import Any, Optional
from torch import Tensor
__version__: str
class C:
    def __init__(self, *, a: int, b: Optional[bool]) -> None: ...
def f(tensor: Tensor) -> dict[str, Any]: ...
"""
    assert interface(generated) == interface(written)
    for old, new in [
        ("f(tensor", "g(tensor"),
        ("Tensor)", "Storage)"),
        ("a: int", "a: str"),
        ("a: int, b", "b"),
        ("a: int", "a: int = 0"),
        ("*, a", "a"),
        ("dict[str, Any]", "None"),
        ("__version__: str", ""),
    ]:
        assert old in written
        assert interface(generated) != interface(written.replace(old, new)), new
