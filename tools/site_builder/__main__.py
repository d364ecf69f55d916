#!/usr/bin/env python3
"""Builds the documentation: all pages of README and docs/, and the references of Python and C++.

Usage: tools/site_builder [--out FOLDER]     needs pdoc, markdown-it-py, Doxygen and recoup
       tools/site_builder --check [ROOT]     only checks that all public names are documented

Fails if a public name of the Python package or of a header in include/recoup has no description, if
a link leads nowhere, and if Doxygen warns.
"""

import argparse
import shutil
import sys
import time
from pathlib import Path

import docstrings
from headers import Header

ROOT = Path(__file__).resolve().parents[2]


def undocumented(root: Path) -> list[str]:
    """Public names without a description, as lines with the file and the line."""
    problems = []
    for path in sorted((root / "include" / "recoup").glob("*.h")):
        for each in Header(path.read_text(encoding="utf-8")).undocumented():
            where = f"{path.relative_to(root)}:{each.first + 1}"
            problems.append(f"{where}: {each.kind} {each.name} needs a comment")
    return problems + docstrings.undocumented(root / "python" / "recoup")


def build(site: Path) -> list[str]:
    """Builds the site, and returns its broken links."""
    # They load PyTorch and packages that only the site needs.
    from links import broken_links
    from pages import write_pages
    from references import write_cpp_reference, write_python_reference

    if site.exists():
        shutil.rmtree(site)
    site.mkdir(parents=True)
    write_pages(ROOT, site)
    write_cpp_reference(ROOT, site / "cpp")
    write_python_reference(site / "python")
    return broken_links(site)


def main() -> int:
    parser = argparse.ArgumentParser(description="Builds the documentation.")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "site")
    parser.add_argument("--check", type=Path, nargs="?", const=ROOT, metavar="ROOT")
    options = parser.parse_args()
    start = time.monotonic()
    problems = undocumented(options.check or ROOT)
    if not problems and options.check is None:
        problems = build(options.out.resolve())
        print(f"{options.out / 'index.html'}: built in {time.monotonic() - start:.0f} s")
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
