"""Modules as a tree by the dots of their names, with sums over each and all below it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

COUNTS = ("ops", "op_ns", "replays", "replay_ns", "evictions", "evicted_bytes")

# No program nests modules this deeply. Further dots in a name are not split.
_DEEPEST = 30


@dataclass
class Module:
    """A module, and the sums over it and all below it."""

    name: str
    """Qualified name; empty for code outside of all modules."""
    depth: int
    """Number of modules above it."""
    above: str | None = None
    """Name of the module right above it; None: it is outermost."""
    peak_bytes: dict[str, int] = field(default_factory=dict)
    """Bytes at the peak, by kind."""
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    children: "dict[str, Module]" = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The part of its name after the name of the module above."""
        return self.name if self.above is None else self.name[len(self.above) + 1 :]


def module_tree(
    rows: Sequence[Mapping[str, Any]], peak_rows: Sequence[Mapping[str, Any]]
) -> list[Module]:
    """All modules of both lists, parents first; numbers in names sort as numbers."""
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
    """Yields the module of that name and those above it, outermost first; makes missing ones."""
    module = root
    parts = name.split(".", _DEEPEST)
    above = None
    for depth, part in enumerate(parts):
        if part not in module.children:
            module.children[part] = Module(".".join(parts[: depth + 1]), depth, above)
        module = module.children[part]
        above = module.name
        yield module


def _below(module: Module) -> Iterator[Module]:
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
