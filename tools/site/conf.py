"""Settings of Sphinx for `make docs`.

The sources are in the root of the project: README.md and the pages next to it, docs/,
build/messages.md, and the references of Python and C++ in this folder.
"""

import re
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[2]

project = "recoup"
extensions = ["myst_parser", "breathe", "sphinx.ext.autodoc"]
include_patterns = ["*.md", "docs/**.md", "build/messages.md", "tools/site/*.md"]
root_doc = "README"
# Each header declares the namespace again.
suppress_warnings = ["duplicate_declaration.cpp"]

smartquotes = False
html_theme = "furo"
html_title = project
html_copy_source = False

myst_heading_anchors = 6

default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_mock_imports = ["lightning"]

breathe_projects = {project: str(ROOT / "build" / "doxygen" / "xml")}
breathe_default_project = project

# First pages of groups of readers, in the order of the navigation. Each precedes its folder.
FIRST_PAGES = [
    "/docs/README",
    "/docs/maintainers/README",
    "/docs/decisions/README",
    "/docs/research/README",
    "/docs/results/README",
]
OTHER_PAGES = [
    "/tools/site/python",
    "/tools/site/cpp",
    "/build/messages",
    "/CHANGELOG",
    "/CONTRIBUTING",
    "/SECURITY",
]


def add_generated_parts(app: Sphinx, name: str, text: list[str]) -> None:
    """Adds the navigation to pages that list others, and the headers to the reference of C++."""
    if name == "tools/site/cpp":
        for header in sorted((ROOT / "include").rglob("*.h")):
            directive = f"```{{doxygenfile}} {header.name}\n:project: {project}\n```"
            text[0] += f"\n## {header.relative_to(ROOT / 'include')}\n{directive}\n"
    elif name == root_doc or f"/{name}" in FIRST_PAGES:
        pages = "\n".join([*FIRST_PAGES, *OTHER_PAGES]) if name == root_doc else "*"
        text[0] += f"\n```{{toctree}}\n:hidden:\n:glob:\n\n{pages}\n```\n"


def adapt_docstring(
    app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]
) -> None:
    """Makes fields of lines "parameter: text", and links of the names of pages."""
    made = list[str]()
    for line in lines:
        if what in ("function", "method") and (found := re.match(r"(\w+): ", line)):
            if made and not made[-1].startswith((":", " ")):
                made.append("")  # ends the paragraph before the fields
            line = f":param {found[1]}: {line[found.end() :]}"
        made.append(re.sub(r"\b(docs/[\w/-]+)\.md\b", r":doc:`\1.md </\1>`", line))
    lines[:] = made


def setup(app: Sphinx) -> None:
    app.connect("source-read", add_generated_parts)
    app.connect("autodoc-process-docstring", adapt_docstring)
