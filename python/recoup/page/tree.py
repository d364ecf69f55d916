"""Modules as a tree by the dots of their names, with what was done in each and below it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

COUNTS = ("ops", "op_ns", "replays", "replay_ns", "evictions", "evicted_bytes")


@dataclass
class Module:
    """A module, and the sums over it and all below it."""

    name: str
    """Qualified; empty for what no module ran."""
    depth: int
    """The modules above it."""
    peak_bytes: dict[str, int] = field(default_factory=dict)
    """Of each kind."""
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    children: "dict[str, Module]" = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The last part of its name."""
        return self.name.rpartition(".")[2]


def module_tree(
    rows: Sequence[Mapping[str, Any]], peak_rows: Sequence[Mapping[str, Any]]
) -> list[Module]:
    """All modules of both, each before those below it; numbers in names sort as numbers."""
    root = Module("", -1)
    for row in rows:
        for module in _path(root, row["module"]):
            for count in COUNTS:
                module.counts[count] += row[count]
    for row in peak_rows:
        for module in _path(root, row["module"]):
            held = module.peak_bytes.get(row["kind"], 0)
            module.peak_bytes[row["kind"]] = held + row["bytes"]
    return list(_below(root))


def _path(root: Module, name: str) -> Iterator[Module]:
    """The module and those above it, which are made when they are new."""
    module = root
    parts = name.split(".")
    for depth, part in enumerate(parts):
        if part not in module.children:
            module.children[part] = Module(".".join(parts[: depth + 1]), depth)
        module = module.children[part]
        yield module


def _below(module: Module) -> Iterator[Module]:
    """Not recursive: a name may have any number of dots."""
    waiting = [module]
    while waiting:
        at = waiting.pop()
        if at is not module:
            yield at
        waiting += sorted(at.children.values(), key=_natural, reverse=True)


def _natural(module: Module) -> list[tuple[int, int, str]]:
    return [
        (0, int(part), "") if part.isdecimal() else (1, 0, part)
        for part in re.split(r"(\d+)", module.label)
    ]
