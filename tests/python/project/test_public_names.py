"""All public names of the package and of the headers are documented; the checks find gaps.

Public are the names of `__all__` in PACKAGES, and in their classes every method, property, field
and attribute whose name has no leading underscore. Methods that override a framework's hook
(`on_...`) are described by the framework.

Each needs a docstring whose first paragraph is a sentence. A function with keyword-only parameters
describes each of them in a line that starts with its name and a colon, or names another public
function, in backticks, that does.

Doxygen checks the headers, with the settings of `make docs`.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import griffe
import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = ("", "integrations", "offline.layout", "offline.order")
SENTENCE = re.compile(r"\w.*[.:](?:\s|$)", re.S)

needs_doxygen = pytest.mark.skipif(shutil.which("doxygen") is None, reason="no Doxygen")


def public_names(root: Path) -> Iterator[tuple[str, griffe.Object]]:
    """The public names of the package in the folder `root`, qualified, and what they are."""
    recoup = griffe.load("recoup", search_paths=[root], allow_inspection=False)
    for package in PACKAGES:
        module = recoup[package] if package else recoup
        for name in module.exports or ():
            found = module[str(name)]
            target = found.final_target if found.is_alias else found
            yield f"{module.path}.{name}", target
            for member in target.members.values() if target.is_class else ():
                if not member.name.startswith(("_", "on_")) and not member.is_alias:
                    yield f"{module.path}.{name}.{member.name}", member


def keywords(found: griffe.Object) -> list[str]:
    parameters = found.parameters if isinstance(found, griffe.Function) else ()
    return [each.name for each in parameters if each.kind is griffe.ParameterKind.keyword_only]


def text_of(found: griffe.Object) -> str:
    return found.docstring.value if found.docstring else ""


def undocumented(root: Path) -> list[str]:
    """What is missing, as lines with the file and the line."""
    names = list(public_names(root))
    described = {found.name: text_of(found) for _, found in names if keywords(found)}
    problems = []
    for name, found in names:
        where = f"{found.relative_package_filepath}:{found.lineno}: {name}"
        text = text_of(found)
        if not SENTENCE.search(text.strip().partition("\n\n")[0]):
            problems.append(f"{where} needs a docstring with a sentence")
            continue
        referred = re.findall(r"`(?:\w+\.)*(\w+)`", text)
        texts = [text, *(described.get(each, "") for each in referred)]
        problems += [
            f"{where} does not describe its parameter {keyword}"
            for keyword in keywords(found)
            if not any(re.search(rf"^\s*{keyword}: ", text, re.M) for text in texts)
        ]
    return problems


def undocumented_in_headers(root: Path, output: Path) -> list[str]:
    """What Doxygen says of the headers in root/include, with the settings of `make docs`."""
    settings = (ROOT / "tools" / "site" / "Doxyfile").read_text(encoding="utf-8")
    done = subprocess.run(
        ["doxygen", "-"],
        input=f'{settings}\nOUTPUT_DIRECTORY = "{output}"\n',
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stderr.splitlines()
    assert bool(done.returncode) == bool(lines), done
    return lines


PACKAGE = {
    "__init__.py": '''
from recoup.run import Run, start
__all__ = ["Run", "VERSION", "start"]
VERSION = "1"
"""Number of the version."""
''',
    "integrations/__init__.py": "__all__ = []\n",
    "offline/__init__.py": "",
    "offline/layout.py": "__all__ = []\n",
    "offline/order.py": "__all__ = []\n",
    "run.py": '''
class Run:
    """One run."""

    size: int = 0
    """Bytes of the run."""
    _hidden: int = 0

    def __init__(self):
        self.device = "cpu"
        """The device of the run."""
        self._state = local = 1

    @property
    def name(self):
        """The name of the run."""

    def end(self, *, now=False):
        """Ends the run.

        now: end it at once.
        """

    def _end(self): ...

def start(*, now=False):
    """Starts a run; `now` is that of `Run.end`."""
''',
}

HEADER = """// What a run has.
#pragma once

#include <string>

namespace recoup {

class Other;

// A run.
struct RECOUP_API Run {
  // What can happen.
  enum class Kind : int { kStart, kEnd };
  Kind kind = Kind::kStart;  // what happened
  std::string name{"a \\"b\\" // c"};  // the name, {without} its (parent)
  bool (*running)(int x);  // whether it runs
  friend bool operator==(const Run&, const Run&) = default;

  // Makes a run of `size` bytes.
  explicit Run(int size) : size_{size}, name{} { start(); }
  // Ends it, with
  // all threads.
  [[nodiscard]] virtual int end(const std::string& how = {},
                                int after = 0) const;

 private:
  int size_;
};

// Starts a run.
template <class T, int N = (1 > 0)>
RECOUP_API T start(T value);

namespace detail {
int hidden();
}  // namespace detail

}  // namespace recoup
"""


def make_package(root: Path, package: dict[str, str]) -> None:
    for name, text in package.items():
        path = root / "recoup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def make_header(root: Path, text: str) -> None:
    path = root / "include" / "recoup" / "run.h"
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")


def test_all_public_names_are_documented() -> None:
    assert len(list(public_names(ROOT / "python"))) > 300
    assert undocumented(ROOT / "python") == []


def test_a_documented_package_passes(tmp_path: Path) -> None:
    make_package(tmp_path, PACKAGE)
    assert undocumented(tmp_path) == []


@pytest.mark.parametrize(
    ("file", "removed", "problem"),
    [
        ("__init__.py", '"""Number of the version."""', "__init__.py:4: recoup.VERSION needs"),
        ("run.py", '"""One run."""', "run.py:2: recoup.Run needs"),
        ("run.py", '"""Bytes of the run."""', "run.py:5: recoup.Run.size needs"),
        ("run.py", "of the run.", "run.py:5: recoup.Run.size needs"),
        ("run.py", '"""The device of the run."""', "run.py:10: recoup.Run.device needs"),
        ("run.py", '"""The name of the run."""', "run.py:15: recoup.Run.name needs"),
        ("run.py", "now: end it at once.", "run.py:18: recoup.Run.end does not describe its"),
        ("run.py", "; `now` is that of `Run.end`", "run.py:26: recoup.start does not describe its"),
    ],
)
def test_an_undocumented_python_name_is_found(
    tmp_path: Path, file: str, removed: str, problem: str
) -> None:
    text = PACKAGE[file].replace(removed, "pass" if removed.startswith('"""') else "", 1)
    make_package(tmp_path, {**PACKAGE, file: text})
    found = undocumented(tmp_path)
    assert any(line.startswith(f"recoup/{problem}") for line in found), found


@needs_doxygen
def test_all_headers_are_documented(tmp_path: Path) -> None:
    assert undocumented_in_headers(ROOT, tmp_path) == []


@needs_doxygen
def test_a_documented_header_passes(tmp_path: Path) -> None:
    make_header(tmp_path, HEADER)
    assert undocumented_in_headers(tmp_path, tmp_path / "xml") == []


@needs_doxygen
@pytest.mark.parametrize(
    ("removed", "problem"),
    [
        ("// A run.", "Compound recoup::Run is not"),
        ("// What can happen.", "Member Kind (enumeration) of struct recoup::Run is not"),
        ("// what happened", "Member kind (variable) of struct recoup::Run is not"),
        ("// the name, {without} its (parent)", "Member name (variable) of struct recoup::Run"),
        ("// whether it runs", "Member running"),
        ("// Makes a run of `size` bytes.", "Member Run(int size) (function) of struct"),
        ("// Ends it, with\n  // all threads.", "Member end("),
        ("// Starts a run.", "Member start("),
    ],
)
def test_an_undocumented_declaration_is_found(tmp_path: Path, removed: str, problem: str) -> None:
    assert removed in HEADER
    make_header(tmp_path, HEADER.replace(removed, ""))
    problems = undocumented_in_headers(tmp_path, tmp_path / "xml")
    assert any("include/recoup/run.h:" in line and problem in line for line in problems), problems
