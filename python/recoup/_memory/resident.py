"""What this process has in memory, and how much of it is behind the pools of scopes."""

import re
from dataclasses import dataclass
from pathlib import Path

from recoup import _C

_SELF = Path("/proc/self")
_HEADER = re.compile(r"([0-9a-f]+)-([0-9a-f]+) ")


@dataclass(frozen=True)
class Process:
    """In bytes, now."""

    taken: int
    """Memory of its own and shared, what of it is in swap, and its page tables."""
    files: int
    """Of that, pages of mapped files, such as its code: page cache, which the kernel calls free."""


def process() -> Process:
    """Raises OSError where /proc is not there."""
    rows = {}
    for line in (_SELF / "status").read_text().splitlines():
        name, _, value = line.partition(":")
        if value.endswith("kB"):
            rows[name] = int(value.removesuffix("kB")) * 1024
    taken = sum(rows.get(name, 0) for name in ("VmRSS", "VmSwap", "VmPTE"))
    return Process(taken=taken, files=rows.get("RssFile", 0))


def pools() -> dict[int, int]:
    """The address of each scope's pool on the CPU, and the bytes of memory behind it.

    Of scopes that are over too, while tensors of theirs live. A pool is known by its size: it has
    addresses for all of physical memory (see `arena_size` in tensor_device.cpp), which nothing else
    has without a file behind it. Raises OSError where /proc is not there.
    """
    least = _C.physical_memory_bytes()
    found: dict[int, int] = {}
    start = None
    with (_SELF / "smaps").open() as file:
        for line in file:
            if header := _HEADER.match(line):
                first, last = int(header[1], 16), int(header[2], 16)
                is_pool = last - first >= least and len(line.split()) == 5
                start = first if is_pool else None
                if start is not None:
                    found[start] = 0
            elif start is not None and line.startswith(("Rss:", "Swap:")):
                found[start] += int(line.split()[1]) * 1024
    return found
