"""What the tests' tables say of one PyTorch and not of another."""

from collections.abc import Iterable
from pathlib import Path

import torch
from packaging.specifiers import SpecifierSet
from packaging.version import Version

RUNNING = Version(Version(torch.__version__).base_version)


def only_here(lines: Iterable[str]) -> list[str]:
    """Those of the PyTorch that runs: `text @ <2.14` is not there in 2.14, `text` always is."""
    found = []
    for line in lines:
        text, _, versions = line.partition(" @ ")
        if RUNNING in SpecifierSet(versions):
            found.append(text)
    return found


def read_lines(path: Path) -> list[str]:
    """Those of a file, as `only_here` has it."""
    return only_here(path.read_text(encoding="utf-8").splitlines())
