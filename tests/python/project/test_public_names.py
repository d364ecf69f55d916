"""All public names of the package and of the headers are documented; the check finds gaps."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BUILDER = ROOT / "tools" / "site_builder"

PACKAGE = {
    "__init__.py": '''
from recoup.run import Run, start
__all__ = ["Run", "VERSION", "start"]
VERSION = "1"
"""Number of the version."""
''',
    "integrations/__init__.py": "__all__ = []\n",
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
#define RUN_MACRO(x) \\\\
  int x;

namespace recoup {

class Other;

// A run.
struct RECOUP_API Run {
  // What can happen.
  enum class Kind : int { kStart, kEnd };
  Kind kind = Kind::kStart;  // what happened
  std::string name{"a \\"b\\" // c"};  // the name, {without} its (parent)
  bool (*running)(int x);  // whether it runs
  // The first and the last byte.
  int first = 0;
  int last = 0;
  friend bool operator==(const Run&, const Run&) = default;

  // Makes a run of `size` bytes.
  explicit Run(int size) : size_{size}, name{} { start(); }
  ~Run();
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


def make_tree(root: Path, package: dict[str, str], header: str) -> None:
    for name, text in package.items():
        path = root / "python" / "recoup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    path = root / "include" / "recoup" / "run.h"
    path.parent.mkdir(parents=True)
    path.write_text(header, encoding="utf-8")


def check(root: Path) -> list[str]:
    command = [sys.executable, BUILDER, "--check", root]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stderr.splitlines()
    assert done.returncode == bool(lines), done.stderr
    return lines


def test_all_public_names_are_documented() -> None:
    assert check(ROOT) == []


def test_a_documented_tree_passes(tmp_path: Path) -> None:
    make_tree(tmp_path, PACKAGE, HEADER)
    assert check(tmp_path) == []


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
    make_tree(tmp_path, {**PACKAGE, file: text}, HEADER)
    assert any(line.startswith(f"recoup/{problem}") for line in check(tmp_path)), check(tmp_path)


@pytest.mark.parametrize(
    ("removed", "problem"),
    [
        ("// A run.", "class Run needs"),
        ("// What can happen.", "enum Run::Kind needs"),
        ("// what happened", "field Run::kind needs"),
        ("// the name, {without} its (parent)", "field Run::name needs"),
        ("// The first and the last byte.", "field Run::last needs"),
        ("// whether it runs", "field Run::running needs"),
        ("// Makes a run of `size` bytes.", "function Run::Run needs"),
        ("// Ends it, with\n  // all threads.", "function Run::end needs"),
        ("// Starts a run.", "function start needs"),
    ],
)
def test_an_undocumented_declaration_is_found(tmp_path: Path, removed: str, problem: str) -> None:
    assert removed in HEADER
    make_tree(tmp_path, PACKAGE, HEADER.replace(removed, ""))
    problems = check(tmp_path)
    assert all(line.startswith("include/recoup/run.h:") for line in problems)
    assert any(problem in line for line in problems)


def test_the_filter_gives_doxygen_its_comments(tmp_path: Path) -> None:
    make_tree(tmp_path, PACKAGE, HEADER)
    command = [sys.executable, BUILDER / "headers.py", tmp_path / "include" / "recoup" / "run.h"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert lines[:2] == ["/// @file", "/// What a run has."]
    assert "  Kind kind = Kind::kStart;  ///< what happened" in lines
    assert "  /// The first and the last byte." in lines
    assert "/** The first and the last byte. */   int last = 0;" in lines
    assert "  int size_;" in lines
