"""Reads tables of tests that differ between versions of PyTorch."""

from collections.abc import Iterable
from pathlib import Path

import torch
from packaging.specifiers import SpecifierSet
from packaging.version import Version

RUNNING = Version(Version(torch.__version__).base_version)


def only_here(lines: Iterable[str]) -> list[str]:
    """Lines for the installed PyTorch: `text @ <2.14` is left out in 2.14, `text` always stays."""
    found = []
    for line in lines:
        text, _, versions = line.partition(" @ ")
        if RUNNING in SpecifierSet(versions):
            found.append(text)
    return found


def read_lines(path: Path) -> list[str]:
    """The lines of a file for the installed PyTorch."""
    return only_here(path.read_text(encoding="utf-8").splitlines())
