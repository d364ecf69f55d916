"""The resident memory of this process, and the part of it that belongs to scopes' pools."""

import re
from dataclasses import dataclass
from pathlib import Path

from recoup import _C

_SELF = Path("/proc/self")
_HEADER = re.compile(r"([0-9a-f]+)-([0-9a-f]+) ")


@dataclass(frozen=True)
class Process:
    """Current memory in bytes."""

    taken: int
    """Private and shared memory, including swapped pages, and page tables."""
    files: int
    """Pages of mapped files in it, such as code: page cache, which the kernel counts as free."""


def process() -> Process:
    """The memory of this process. Raises OSError if /proc is not available."""
    rows = {}
    for line in (_SELF / "status").read_text().splitlines():
        name, _, value = line.partition(":")
        if value.endswith("kB"):
            rows[name] = int(value.removesuffix("kB")) * 1024
    taken = sum(rows.get(name, 0) for name in ("VmRSS", "VmSwap", "VmPTE"))
    return Process(taken=taken, files=rows.get("RssFile", 0))


def pools() -> dict[int, int]:
    """The address of each scope's pool on the CPU, and the bytes of memory that it takes.

    Includes pools of scopes that have ended while their tensors live. A pool is recognized by its
    size: it has addresses for all of physical memory (see `make_arena` in host_backend.cpp), and
    no other mapping without a file is as large. Raises OSError if /proc is not available.
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
