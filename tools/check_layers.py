#!/usr/bin/env python3
"""Checks the layer order. Fails if a C++ folder includes one below it, or knows Torch and must not;
if files of a folder include one another in a circle (a header and its source count as one file); if
a folder of C++ or of the Python package has more than 25 files; and if a folder of the package
imports one below it, outside of a function or from the laboratory.

Usage: tools/check_layers.py [ROOT]
"""

import ast
import os
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

CHECKER = "tools/check_layers.py"
# Each folder may include only itself and those above it.
LAYERS = (
    "include/recoup",
    "csrc/base",
    "csrc/pool",
    "csrc/layout",
    "csrc/lineage",
    "csrc/policy",
    "csrc/engine/base",
    "csrc/engine/state",
    "csrc/engine/tier",
    "csrc/engine/reclaim",
    "csrc/engine/attempt",
    "csrc/engine/replay",
    "csrc/engine/program",
    "csrc/engine/reports",
    "csrc/trace",
    "csrc/schedule",
    "csrc/simulator",
    "csrc/steps/track",
    "csrc/steps/prefetch",
    "csrc/steps/place",
    "csrc/steps/follow",
    "csrc/steps/trial",
    "csrc/steps/evict",
    "csrc/cuda",
    "csrc/disk",
    "csrc/paging",
    "csrc/share",
    "csrc/torch/compat",
    "csrc/torch/backend",
    "csrc/torch/gpu",
    "csrc/torch/ops",
    "csrc/torch/storages",
    "csrc/torch/overflow",
    "csrc/torch/session",
    "csrc/torch/frames",
    "csrc/torch/calls",
    "csrc/torch/api",
    "csrc/python",
    # The laboratory, below the whole runtime.
    "include/recoup/offline",
    "csrc/offline/dtr",
    "csrc/offline/traces",
    "csrc/offline/layout",
    "csrc/offline/order",
    "csrc/offline/python",
)
TORCH_FOLDERS = ("csrc/torch", "csrc/python", "csrc/offline/python")
MOST_FILES = 25
"""Maximum number of files in a folder of C++ or of the package."""
# The public headers that include Torch: including one counts as including Torch.
TORCH_FACES = ("include/recoup/torch.h", "include/recoup/bindings.h")
TORCH_HEADER = re.compile(r"(ATen|c10|caffe2|torch|pybind11)/|Python\.h$")
# The core's tests must build without Torch too, and include the core only.
CORE_TESTS = "tests/core"

PYTHON = "python"
# As LAYERS, for packages and modules. The nets do not depend on recoup.
PYTHON_LAYERS = (
    "recoup.bench.nets",
    "recoup._C",
    "recoup.warning",
    "recoup.errors",
    "recoup.gpus",
    "recoup.stats",
    "recoup.rows",
    "recoup.paged",
    "recoup.shared",
    "recoup._patching",
    "recoup._memory",
    "recoup._reporting",
    "recoup.bench.harness",
    "recoup._verify",
    "recoup",
    "recoup.integrations",
    "recoup.page",
    "recoup.offline",
    "recoup.bench",
    "recoup.bench.real",
    "recoup.commands",
    "recoup_pytest",
)
# What is above it, a program in a budget may load: there no function imports it, either.
LABORATORY = "recoup.offline"
# The command line, at the path that Python requires.
PYTHON_MAIN = "python/recoup/__main__.py"

INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')
SUFFIXES = {".h", ".hpp", ".cpp", ".cc"}


def layer_of(path: str) -> str | None:
    """The innermost layer of the file."""
    return max((at for at in LAYERS if path.startswith(at + "/")), key=len, default=None)


def in_torch_folder(path: str) -> bool:
    return any(path.startswith(folder + "/") for folder in TORCH_FOLDERS)


def included_path(root: Path, file: Path, name: str, quoted: bool) -> str:
    """The included file's path in the tree, or `name` itself if it is outside of it."""
    if name.startswith("recoup/"):
        return f"include/{name}"
    if quoted and (file.parent / name).is_file():
        return os.path.relpath(file.parent / name, root)
    return name


def complaint(path: str, target: str) -> str | None:
    """Why the file `path` may not include `target`; None if it may."""
    layer = layer_of(path)
    target_layer = layer_of(target)
    knows_torch = in_torch_folder(path) or path in TORCH_FACES
    is_torch = target in TORCH_FACES or TORCH_HEADER.match(target) or in_torch_folder(target)
    if not knows_torch and is_torch:
        return (
            f"only {', '.join(TORCH_FACES)}, {' and '.join(TORCH_FOLDERS)} may know Torch: {target}"
        )
    if target_layer is None:
        if target.startswith("csrc/"):
            return f"{target} is in no layer: add its folder to LAYERS in {CHECKER}"
    elif layer and LAYERS.index(target_layer) > LAYERS.index(layer):
        return f"{layer} may not include {target_layer}, which is below it: {target}"
    return None


def sources(root: Path) -> Iterator[Path]:
    for folder in ("include", "csrc", CORE_TESTS):
        for file in sorted((root / folder).rglob("*")):
            if file.suffix in SUFFIXES:
                yield file


def complaints(root: Path, file: Path) -> Iterator[str]:
    path = file.relative_to(root).as_posix()
    if layer_of(path) is None and not path.startswith(CORE_TESTS + "/"):
        yield f"{path}:1: its folder is in no layer: add it to LAYERS in {CHECKER}"
        return
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        if match := INCLUDE.match(line):
            target = included_path(root, file, match[2], quoted=match[1] == '"')
            if reason := complaint(path, target):
                yield f"{path}:{number}: {reason}"


def crowded(root: Path, files: list[Path]) -> Iterator[str]:
    """Reports folders with too many files."""
    counts = Counter(file.parent.relative_to(root).as_posix() for file in files)
    for folder, count in sorted(counts.items()):
        if count > MOST_FILES:
            yield f"{folder}: {count} files, {MOST_FILES} at most: split it"


def circles(root: Path, files: list[Path]) -> Iterator[str]:
    """Reports one include circle for each folder that has any."""
    folders: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for file in files:
        folder, name = os.path.split(file.relative_to(root).with_suffix("").as_posix())
        for line in file.read_text(encoding="utf-8").splitlines():
            if match := INCLUDE.match(line):
                target = included_path(root, file, match[2], quoted=match[1] == '"')
                target_folder, target_name = os.path.split(os.path.splitext(target)[0])
                if target_folder == folder and target_name != name:
                    folders[folder][name].add(target_name)
    for folder, includes in folders.items():
        try:
            TopologicalSorter(includes).prepare()
        except CycleError as error:
            yield f"{folder}: files include one another in a circle: {' <- '.join(error.args[1])}"


def python_layer(module: str) -> str | None:
    """The innermost layer of the module."""
    found = [at for at in PYTHON_LAYERS if f"{module}.".startswith(f"{at}.")]
    return max(found, key=len, default=None)


def imports(
    node: ast.AST, package: list[str], later: bool = False
) -> Iterator[tuple[int, str, bool]]:
    """Line and name of each import of a module of `package`, and whether a function runs it."""
    children = ast.iter_child_nodes(node)
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            later = True
        case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
            children = iter(node.orelse)
        case ast.Import():
            yield from ((node.lineno, alias.name, later) for alias in node.names)
        case ast.ImportFrom():
            above = package[: len(package) + 1 - node.level] if node.level else []
            base = [*above, *([node.module] if node.module else [])]
            yield from ((node.lineno, ".".join([*base, each.name]), later) for each in node.names)
    for child in children:
        yield from imports(child, package, later)


def python_complaints(root: Path, file: Path) -> Iterator[str]:
    path = file.relative_to(root).as_posix()
    package = list(file.parent.relative_to(root / PYTHON).parts)
    layer = python_layer(".".join([*package, file.stem]))
    if layer is None or (layer == "recoup" and len(package) > 1):
        yield f"{path}:1: its folder is in no layer: add it to PYTHON_LAYERS in {CHECKER}"
        return
    if path == PYTHON_MAIN:
        return
    for line, target, later in imports(ast.parse(file.read_bytes(), path), package):
        target_layer = python_layer(target)
        if (
            target_layer
            and (not later or target_layer == LABORATORY)
            and PYTHON_LAYERS.index(target_layer) > PYTHON_LAYERS.index(layer)
        ):
            yield f"{path}:{line}: {layer} may not load {target_layer}, below it: {target}"


def main(arguments: list[str]) -> int:
    root = Path(arguments[0] if arguments else Path(__file__).parent.parent).resolve()
    files = list(sources(root))
    if not files:
        print(f"check_layers: no C++ sources under {root}", file=sys.stderr)
        return 2
    found = [text for file in files for text in complaints(root, file)]
    found += circles(root, files)
    modules = sorted((root / PYTHON).rglob("*.py"))
    tests = sorted((root / "tests" / "python").rglob("*.py"))
    found += crowded(root, [*files, *modules, *tests])
    found += [text for module in modules for text in python_complaints(root, module)]
    for text in found:
        print(text)
    print(f"check_layers: {len(files) + len(modules)} files, {len(found)} against the layer order")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
