"""Finds public names of the Python package without a docstring. Reads the sources, imports nothing.

Public are the names of `__all__` in the modules of PACKAGES, and in their classes every
method, property, field and attribute whose name has no leading underscore. Methods that override a
framework's hook (`on_...`) are described by the framework.

Each needs a docstring whose first paragraph is a sentence. A function with keyword-only parameters
describes each of them in a line that starts with its name and a colon, or names another public
function, in backticks, that does.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGES = ("recoup", "recoup.integrations", "recoup.offline.layout", "recoup.offline.order")
_SENTENCE = re.compile(r"\w.*[.:](?:\s|$)", re.S)


@dataclass(frozen=True)
class PublicName:
    """A public name: where it is defined, and its docstring."""

    name: str
    """Qualified, as in recoup.Run.stats."""
    file: Path
    line: int
    docstring: str
    keywords: tuple[str, ...] = ()
    """Its keyword-only parameters, if it is a function."""


def undocumented(root: Path) -> list[str]:
    """What is missing in the package in the folder `root`, as lines with the file and the line."""
    names = [name for package in PACKAGES for name in public_names(root, package)]
    described = {each.name.rpartition(".")[2]: each for each in names if each.keywords}
    problems = []
    for each in names:
        where = f"{each.file.relative_to(root.parent)}:{each.line}: {each.name}"
        first = each.docstring.strip().partition("\n\n")[0]
        if not _SENTENCE.search(first):
            problems.append(f"{where} needs a docstring with a sentence")
            continue
        referred = re.findall(r"`(?:\w+\.)*(\w+)`", each.docstring)
        texts = [
            each.docstring,
            *(described[name].docstring for name in referred if name in described),
        ]
        for keyword in each.keywords:
            if not any(re.search(rf"^\s*{keyword}: ", text, re.M) for text in texts):
                problems.append(f"{where} does not describe its parameter {keyword}")
    return problems


def public_names(root: Path, package: str) -> Iterator[PublicName]:
    """The public names of a package with `__all__`, and those in its classes."""
    file = _file_of(root, package)
    module = ast.parse(file.read_text(encoding="utf-8"))
    homes = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in ast.walk(module)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    for name in _all(module):
        home, original = homes.get(name, (package, name))
        source = _file_of(root, home)
        body = ast.parse(source.read_text(encoding="utf-8")).body
        found = [each for each in _members(body, source, package) if each[0] == original]
        if not found:
            raise ValueError(f"{source}: there is no {original}")
        node = found[0][1]
        yield found[0][2]
        if isinstance(node, ast.ClassDef):
            for member, _, public in _members(node.body, source, f"{package}.{name}"):
                if not member.startswith(("_", "on_")):
                    yield public


def _members(
    body: list[ast.stmt], file: Path, owner: str, *, in_init: bool = False
) -> Iterator[tuple[str, ast.stmt, PublicName]]:
    """The functions, classes and variables that statements define; of `__init__`, attributes."""
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            keywords: tuple[str, ...] = ()
            if isinstance(node, ast.FunctionDef):
                keywords = tuple(argument.arg for argument in node.args.kwonlyargs)
            text = ast.get_docstring(node) or ""
            name = f"{owner}.{node.name}"
            yield node.name, node, PublicName(name, file, node.lineno, text, keywords)
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                yield from _members(node.body, file, owner, in_init=True)
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            attribute = ast.unparse(target)
            if in_init:
                if not attribute.startswith("self."):
                    continue
                attribute = attribute.removeprefix("self.")
            text = ""
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                text = str(after.value.value)
            name = f"{owner}.{attribute}"
            yield attribute, node, PublicName(name, file, node.lineno, text)


def _all(module: ast.Module) -> list[str]:
    for node in module.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    raise ValueError("the module has no __all__")


def _file_of(root: Path, module: str) -> Path:
    path = root.joinpath(*module.split(".")[1:])
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
