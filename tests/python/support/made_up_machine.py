"""Made-up files of /proc and /sys/fs/cgroup."""

from collections.abc import Callable
from pathlib import Path

import pytest

from recoup._memory import machine
from recoup._memory.machine import Roots

GIB = 1 << 30
LeaveFree = Callable[[int], None]


def write(path: Path, text: object) -> None:
    """Writes a file at once: another thread may read it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    new.write_text(f"{text}\n")
    new.replace(path)


def made_up(folder: Path, *, cgroup: str = "", available: int = 48 * GIB) -> Roots:
    """A machine of 64 GiB; `cgroup` is the content of /proc/self/cgroup."""
    roots = Roots(proc=folder / "proc", cgroup=folder / "cgroup")
    total = 64 * GIB
    text = f"MemTotal:  {total // 1024} kB\nMemFree: 7 kB\nMemAvailable: {available // 1024} kB"
    write(roots.proc / "meminfo", text)
    write(roots.proc / "self/cgroup", cgroup)
    write(roots.proc / "self/status", "Name:\tpython\nVmSize: 4194304 kB\nVmRSS: 1048576 kB")
    roots.cgroup.mkdir()
    return roots


def version_2(
    roots: Roots, path: str, limit: object, used: int, *, cache: int = 0, high: object = "max"
) -> Path:
    """A cgroup of version 2 with a limit; `cache` is the page cache among the used bytes."""
    write(roots.cgroup / "cgroup.controllers", "cpu memory")
    folder = roots.cgroup / path
    write(folder / "memory.max", limit)
    write(folder / "memory.high", high)
    write(folder / "memory.current", used)
    stat = f"anon {used - cache}\nfile {cache}\ninactive_file {cache // 2}\n"
    write(folder / "memory.stat", stat + f"active_file {cache - cache // 2}\nworkingset_x 0")
    return folder


def version_1(
    roots: Roots, path: str, limit: object, used: int, *, cache: int = 0, above: object = None
) -> Path:
    """A cgroup of version 1; `above` is the least limit of its ancestors, if the file names it."""
    folder = roots.cgroup / "memory" / path
    write(folder / "memory.limit_in_bytes", limit)
    write(folder / "memory.usage_in_bytes", used)
    stat = f"inactive_file 1\nactive_file 1\ntotal_inactive_file {cache}\ntotal_active_file 0"
    if above is not None:
        stat += f"\nhierarchical_memory_limit {above}"
    write(folder / "memory.stat", stat)
    return folder


def limited(folder: Path, monkeypatch: pytest.MonkeyPatch) -> LeaveFree:
    """A cgroup of 2 GiB on a machine of 64 GiB; the result sets how many of its bytes are free."""
    roots = made_up(folder / "machine", cgroup="0::/job")
    monkeypatch.setattr(machine, "_roots", roots)

    def leave(free: int) -> None:
        version_2(roots, "job", 2 * GIB, 2 * GIB - free)

    leave(GIB)
    return leave
