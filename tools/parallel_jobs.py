"""Prints the number of compilers or test processes that this machine can run at a time.

One per core if each has 2 GB of memory; at least one. A container's limits on both are respected.
"""

import os
from pathlib import Path

BYTES_PER_JOB = 2e9
_CGROUP = Path("/sys/fs/cgroup")


def jobs() -> int:
    return max(1, min(_cores(), int(_memory() / BYTES_PER_JOB)))


def _cores() -> int:
    cores = len(os.sched_getaffinity(0))
    limit = _words(_CGROUP / "cpu.max")
    if len(limit) == 2 and limit[0] != "max":
        cores = min(cores, -(-int(limit[0]) // int(limit[1])))
    return cores


def _memory() -> float:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _words(_CGROUP / "memory.max")
    return memory if limit in ([], ["max"]) else min(memory, int(limit[0]))


def _words(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").split()
    except OSError:
        return []


if __name__ == "__main__":
    print(jobs())
