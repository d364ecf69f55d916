"""The references of the Python package, made by pdoc, and of the C++ headers, made by Doxygen."""

import ast
import importlib
import itertools
import re
import subprocess
import sys
import types
import warnings
from pathlib import Path

import pdoc.doc
import pdoc.render
from docstrings import PACKAGES

_HERE = Path(__file__).parent
_MODULES = (*PACKAGES, "recoup.offline.optimum")

# Frameworks that `make build` does not install, and what recoup.integrations takes from them.
_STAND_INS = {"lightning.pytorch": ("Callback", "LightningModule", "Trainer")}

# Warnings are errors. Whether all is documented is checked before: Doxygen would also ask for
# comments on operators.
_DOXYFILE = """
PROJECT_NAME = "recoup for C++"
PROJECT_BRIEF = "The public headers"
INPUT = include/recoup "{here}/main_page.dox"
FILE_PATTERNS = *.h
STRIP_FROM_PATH = include
STRIP_FROM_INC_PATH = include
OUTPUT_DIRECTORY = "{output}"
HTML_OUTPUT = .
FILTER_PATTERNS = "*.h=\\"{python}\\" \\"{here}/headers.py\\""
PREDEFINED = RECOUP_API=
MACRO_EXPANSION = YES
EXPAND_ONLY_PREDEF = YES
SEARCH_INCLUDES = NO
JAVADOC_AUTOBRIEF = YES
BUILTIN_STL_SUPPORT = YES
DISTRIBUTE_GROUP_DOC = YES
EXCLUDE_SYMBOLS = recoup::detail std
SORT_MEMBER_DOCS = NO
ENUM_VALUES_PER_LINE = 1
GENERATE_LATEX = NO
GENERATE_TREEVIEW = YES
HTML_COLORSTYLE_SAT = 40
HAVE_DOT = NO
CLASS_GRAPH = NO
VERBATIM_HEADERS = NO
QUIET = YES
WARN_IF_UNDOCUMENTED = NO
WARN_IF_INCOMPLETE_DOC = NO
WARN_IF_DOC_ERROR = YES
WARN_AS_ERROR = FAIL_ON_WARNINGS
"""


def write_python_reference(folder: Path) -> None:
    """Imports the package, and writes a page for each module and an index with a search."""
    for name, members in _STAND_INS.items():
        _stand_in(name, members)
    warnings.filterwarnings("error", module="pdoc")
    folder.mkdir(parents=True)
    pdoc.render.configure(
        docformat="markdown",
        show_source=False,
        include_undocumented=False,
        template_directory=_HERE / "templates",
    )
    modules = {name: pdoc.doc.Module(_loaded(name)) for name in _MODULES}
    for name, module in modules.items():
        module.docstring = _with_code(module.docstring)  # type: ignore[misc]
        _adapt_docstrings(module, "../" * (name.count(".") + 1))
        page = pdoc.render.html_module(module=module, all_modules=modules)
        path = folder / f"{name.replace('.', '/')}.html"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, encoding="utf-8")
    (folder / "index.html").write_text(pdoc.render.html_index(modules), encoding="utf-8")
    (folder / "search.js").write_text(pdoc.render.search_index(modules), encoding="utf-8")


def write_cpp_reference(root: Path, folder: Path) -> None:
    """Runs Doxygen over include/recoup. Raises CalledProcessError if it warns of anything."""
    folder.mkdir(parents=True)
    settings = _DOXYFILE.format(output=folder, python=sys.executable, here=_HERE)
    subprocess.run(["doxygen", "-"], input=settings, text=True, cwd=root, check=True)


def _loaded(name: str) -> types.ModuleType:
    """The module with all its names, of which it may load some on first access."""
    module = importlib.import_module(name)
    for member in getattr(module, "__all__", ()):
        getattr(module, member)
    return module


def _stand_in(name: str, members: tuple[str, ...]) -> None:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        package, _, module = name.partition(".")
        sys.modules[package] = types.ModuleType(package)
        sys.modules[name] = types.ModuleType(module)
        for member in members:
            setattr(sys.modules[name], member, type(member, (), {"__module__": name}))


def _with_code(text: str) -> str:
    """Puts fences around paragraphs of Python."""
    made = []
    for is_code, paragraphs in itertools.groupby(text.split("\n\n"), _is_code):
        part = "\n\n".join(paragraphs)
        made.append(f"```python\n{part}\n```" if is_code else part)
    return "\n\n".join(made)


def _is_code(paragraph: str) -> bool:
    try:
        ast.parse(paragraph)
    except SyntaxError:
        return False
    return True


def _adapt_docstrings(namespace: "pdoc.doc.Namespace[object]", up: str) -> None:
    """Makes a list of lines "parameter: text", and links of the names of pages.

    up: the way from the reference's page to the root of the site.
    """
    for member in namespace.own_members:
        text = re.sub(
            r"\bdocs/([\w/-]+)\.md\b", rf"[docs/\1.md]({up}docs/\1.html)", member.docstring
        )
        if isinstance(member, pdoc.doc.Class):
            _adapt_docstrings(member, up)
        elif isinstance(member, pdoc.doc.Function) and member.signature.parameters:
            names = "|".join(member.signature.parameters)
            text = re.sub(rf"^({names}): ", r"- `\1`: ", text, flags=re.M)
        member.docstring = text  # type: ignore[misc]
