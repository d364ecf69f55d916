"""What recoup uses of PyTorch's internals: headers, symbols of its libraries, private Python names.

    python tests/python/script.py torch_internals --seen

records in torch_internals.txt that every use works with the installed PyTorch. Run it after the
whole suite has passed with that PyTorch, and review its changes.
"""

import argparse
import ast
import importlib
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

import recoup
from patched import tables
from torch_versions import RUNNING

ROOT = Path(__file__).parents[3]
PACKAGE = Path(recoup.__file__).parent
LIST = Path(__file__).with_name("torch_internals.txt")
TORCH = Path(torch.__file__).parent
LIBRARIES = ("torch_cpu", "c10", "torch_python")
MINOR = f"{RUNNING.major}.{RUNNING.minor}"

# The kind of a use, and its name.
Use = tuple[str, str]


# ---- uses ----


def headers() -> set[str]:
    sources = (path for folder in ("include", "csrc") for path in (ROOT / folder).rglob("*.*"))
    include = re.compile(r"^#include <((?:ATen|c10|caffe2|torch)/.+)>", re.MULTILINE)
    named = {name for path in sources for name in include.findall(path.read_text("utf-8"))}
    return named | _asked_for()


def _asked_for() -> set[str]:
    """Headers whose presence tells versions of PyTorch apart."""
    text = "".join(path.read_text("utf-8") for path in (ROOT / "csrc").rglob("*.h"))
    return set(re.findall(r"__has_include\(<((?:ATen|c10|caffe2|torch)/.+?)>\)", text))


def symbols() -> set[str]:
    """Symbols of PyTorch's libraries that recoup's built libraries import."""
    wanted = {name for path in _built() for name in _symbols(path, "--undefined-only")}
    return {name for name in _demangled(wanted & defined()) if not name.startswith("std::")}


def _built() -> list[Path]:
    module = Path(recoup._C.__file__)
    return [module, module.parent / "lib/librecoup_torch.so"]


def missing() -> list[str]:
    """Symbols of PyTorch's namespaces that the built libraries import and PyTorch lacks."""
    own = {name for path in _built() for name in _symbols(path, "--defined-only")}
    wanted = {name for path in _built() for name in _symbols(path, "--undefined-only")}
    of_torch = re.compile(r"(vtable for |typeinfo for )?(at|c10|caffe2|torch)::|THP")
    return [name for name in _demangled(wanted - own - defined()) if of_torch.match(name)]


def defined() -> set[str]:
    paths = (TORCH / "lib" / f"lib{name}.so" for name in LIBRARIES)
    return {name for path in paths for name in _symbols(path, "--defined-only")}


def _symbols(path: Path, which: str) -> Iterator[str]:
    """Strong symbols only: a library loads without a weak one."""
    command = ["nm", "--dynamic", which, "--format=posix", str(path)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    for line in lines:
        name, kind, *_ = line.split()
        if which == "--defined-only" or kind == "U":
            yield name.partition("@")[0]


def _demangled(names: Iterable[str]) -> list[str]:
    done = subprocess.run(
        ["c++filt"], input="\n".join(sorted(names)), capture_output=True, text=True, check=True
    )
    return done.stdout.split("\n") if done.stdout else []


def private_names() -> set[str]:
    """Names with a private part in the package's sources or in its tables of replacements."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        found |= _Names().of(ast.parse(path.read_text("utf-8")))
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        # Imports modules to find their tables; callbacks need their frameworks, and have no tables.
        if path.name != "__main__.py" and path.parent.name != "integrations":
            importlib.import_module(module)
    for table in tables().values():
        for row in table.replacements:
            owner = row.owner
            place = getattr(owner, "__qualname__", "")
            module = owner.__module__ if place else owner.__name__
            found.add(".".join(filter(None, (module, place, row.name))))
    return {name for name in found if is_private(name)}


def is_private(name: str) -> bool:
    parts = name.split(".")
    return parts[0] == "torch" and any(
        part.startswith("_") and not part.startswith("__") for part in parts
    )


class _Names(ast.NodeVisitor):
    """Dotted names of PyTorch, with import aliases resolved."""

    def __init__(self) -> None:
        self._aliases: dict[str, str] = {}
        self._found: set[str] = set()

    def of(self, tree: ast.AST) -> set[str]:
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                self._import({each.asname or each.name: each.name for each in node.names})
            elif isinstance(node, ast.ImportFrom) and node.module:
                of = {each.asname or each.name: each.name for each in node.names}
                self._import({name: f"{node.module}.{what}" for name, what in of.items()})
        self.visit(tree)
        return self._found

    def _import(self, names: dict[str, str]) -> None:
        for name, what in names.items():
            if what.partition(".")[0] == "torch":
                self._found.add(what)
                self._aliases[name.partition(".")[0]] = what if name != what else "torch"

    def _dotted(self, node: ast.AST) -> str | None:
        if isinstance(node, ast.Name):
            return self._aliases.get(node.id)
        if isinstance(node, ast.Attribute):
            base = self._dotted(node.value)
            return base and f"{base}.{node.attr}"
        return None

    def visit_Attribute(self, node: ast.Attribute) -> None:
        name = self._dotted(node)
        if name:
            self._found.add(name)
        else:
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id == "getattr":
            owner, name = self._dotted(node.args[0]), node.args[1]
            if owner and isinstance(name, ast.Constant):
                self._found.add(f"{owner}.{name.value}")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str) and re.fullmatch(r"torch(\.\w+)+", node.value):
            self._found.add(node.value)


def uses() -> set[Use]:
    kinds = {"header": headers(), "symbol": symbols(), "python": private_names()}
    return {(kind, name) for kind, names in kinds.items() for name in names}


# ---- whether it exists ----


def is_there(use: Use) -> bool:
    kind, name = use
    if kind == "header":
        return (TORCH / "include" / name).exists()
    return kind == "symbol" or _resolves(name)  # symbols are listed from the installed files


def _resolves(name: str) -> bool:
    parts = name.split(".")
    thing: Any = torch
    for i, part in enumerate(parts[1:], 2):
        try:
            thing = getattr(thing, part)
        except AttributeError:
            try:
                thing = importlib.import_module(".".join(parts[:i]))
            except ImportError:
                return False
    return True


def may_be_there(use: Use) -> bool:
    """Whether a build of PyTorch like the installed one can have it: some names need CUDA."""
    return torch.version.cuda is not None or "._cuda_" not in use[1]


# ---- the list ----


def listed() -> dict[Use, set[str]]:
    """The minor versions in which each use was seen to work."""
    found: dict[Use, set[str]] = {}
    for line in LIST.read_text("utf-8").splitlines():
        use, _, versions = line.rpartition(" @ ")
        kind, _, name = use.partition(" ")
        found[kind, name] = set(versions.split())
    return found


def write(rows: dict[Use, set[str]]) -> None:
    lines = [
        f"{kind} {name} @ {' '.join(sorted(versions, key=lambda v: [*map(int, v.split('.'))]))}\n"
        for (kind, name), versions in sorted(rows.items())
        if versions
    ]
    LIST.write_text("".join(lines), "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seen", action="store_true", required=True)
    parser.parse_args()
    rows = {use: versions - {MINOR} for use, versions in listed().items()} if LIST.exists() else {}
    for use in uses():
        if is_there(use):
            rows.setdefault(use, set()).add(MINOR)
    write(rows)


if __name__ == "__main__":
    main()
