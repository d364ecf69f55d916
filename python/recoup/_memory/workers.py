"""The memory of worker processes, such as those of a DataLoader."""

import os
from collections.abc import Collection, Iterator
from pathlib import Path

_PROC = Path("/proc")
_OWN = ("Private_Dirty:", "Swap:")


def worker_bytes(others: Collection[int] = ()) -> int:
    """Memory that descendants of this process have written, and share with no process.

    Pages that a forked child has in common with its parent are left out, and so is shared memory,
    which a scope of the parent is charged for when it uses it. Processes in `others` and their
    descendants are left out. 0 without /proc.
    """
    return sum(map(_own_bytes, _descendants(os.getpid(), others)))


def _descendants(process: int, others: Collection[int]) -> Iterator[int]:
    for child in _children(process):
        if child not in others:
            yield child
            yield from _descendants(child, others)


def _children(process: int) -> list[int]:
    found: list[int] = []
    try:
        for thread in (_PROC / str(process) / "task").iterdir():
            found += map(int, (thread / "children").read_text().split())
    except OSError:  # it ended meanwhile, or the kernel does not list children
        pass
    return found


def _own_bytes(process: int) -> int:
    try:
        rows = (_PROC / str(process) / "smaps_rollup").read_text().splitlines()
    except OSError:  # it ended meanwhile
        return 0
    return sum(int(row.split()[1]) * 1024 for row in rows if row.startswith(_OWN))
