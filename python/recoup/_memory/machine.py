"""How much memory this process may still take, and which file says so.

The least counts of:

- physical memory: `MemAvailable` of /proc/meminfo, which counts page cache as free;
- every cgroup of the process up to the root. Version 2: `memory.max`, and `memory.high`, above
  which the kernel slows a process down. Version 1: `memory.limit_in_bytes`, and the limit of
  cgroups that a container does not see, which `memory.stat` says. Page cache of files is free there
  too, for the kernel drops it before it kills;
- `ulimit -v` and `ulimit -d`, which count addresses.

Swap does not count. Where a file is missing there is no such limit; what a file says and is no
number is a problem for `Memory.problems`, and no limit either.

cgroups are looked for where systemd and containers mount them: version 2 at /sys/fs/cgroup, or in
its folder `unified` beside those of version 1, whose memory is in `memory`. A path that is not
there, as in a container that shares the host's names, means the mount's own root.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Kind = Literal["physical", "cgroup", "slows down", "addresses"]


@dataclass(frozen=True)
class Roots:
    """Where the system's files are. Tests have made-up ones."""

    proc: Path = Path("/proc")
    cgroup: Path = Path("/sys/fs/cgroup")


REAL = Roots()
_roots = REAL


def set_roots(roots: Roots) -> None:
    """Takes all files from there, from now on. For tests: a limit that no kernel enforces."""
    global _roots
    _roots = roots


@dataclass(frozen=True)
class Limit:
    """A bound on this process's memory, alone or with others."""

    kind: Kind
    source: str
    """The file, and its line where it has several."""
    limit_bytes: int
    """How much there may be in all."""
    free_bytes: int
    """How much of it nobody has yet, or only as page cache; at least 0."""


@dataclass
class Memory:
    """What was found."""

    limits: list[Limit] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """Files that could not be read, and what they say that is no number."""

    @property
    def free(self) -> Limit:
        """The limit of which the least is free."""
        return min(self.limits, key=lambda each: each.free_bytes)

    @property
    def most(self) -> Limit:
        """The least limit on memory: a process that takes more is killed."""
        memory = [each for each in self.limits if each.kind in ("physical", "cgroup")]
        return min(memory, key=lambda each: each.limit_bytes)


def look(roots: Roots | None = None) -> Memory:
    """What there is now. There is always a limit: that of physical memory."""
    roots = roots or _roots
    memory = Memory()
    reader = _Reader(memory.problems)
    memory.limits.append(_physical(roots, reader))
    memory.limits += _version_2(roots, reader)
    memory.limits += _version_1(roots, reader)
    memory.limits += _of_addresses(roots, reader)
    return memory


class _Reader:
    """Numbers in files; None where there are none."""

    def __init__(self, problems: list[str]) -> None:
        self._problems = problems

    def text(self, path: Path) -> str:
        try:
            return path.read_text(errors="replace")
        except (FileNotFoundError, NotADirectoryError):
            return ""
        except OSError as error:
            self._problems.append(f"{path}: {error.strerror}")
            return ""

    def number(self, path: Path) -> int | None:
        """Of a file that holds nothing else; None for `max`."""
        text = self.text(path).strip()
        return None if text in ("", "max") else self.parse(text, path)

    def parse(self, text: str, source: object) -> int | None:
        if text.isascii() and text.isdecimal() and len(text) < 20:
            return int(text)
        self._problems.append(f"{source} says {text[:40]!r}, which is not a number of bytes")
        return None

    def table(self, path: Path) -> dict[str, str]:
        """The lines of `name value` or `name: value kB`, as they are."""
        rows = (line.replace(":", " ", 1).split(None, 1) for line in self.text(path).splitlines())
        return {row[0]: row[1] for row in rows if len(row) == 2}

    def kilobytes(self, path: Path, table: dict[str, str], name: str) -> int | None:
        """A row of /proc/meminfo or /proc/self/status, in bytes."""
        if name not in table:
            return None
        count = self.parse(table[name].removesuffix("kB").strip(), f"{path} ({name})")
        return None if count is None else count * 1024


def _physical(roots: Roots, reader: _Reader) -> Limit:
    path = roots.proc / "meminfo"
    table = reader.table(path)
    total = reader.kilobytes(path, table, "MemTotal")
    if total is None:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    free = reader.kilobytes(path, table, "MemAvailable")
    if free is None:
        # Less than there is, which is the safe side: page cache is left out.
        free = reader.kilobytes(path, table, "MemFree")
    if free is None:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Limit("physical", str(path), total, min(free, total))


# Version 1 says "no limit" as the largest number of pages that it can hold.
_NO_LIMIT = 1 << 60


def _version_2(roots: Roots, reader: _Reader) -> Iterator[Limit]:
    is_pure = (roots.cgroup / "cgroup.controllers").exists()
    mount = roots.cgroup if is_pure else roots.cgroup / "unified"
    for folder in _folders(mount, _path_of(roots, reader, "")):
        kinds: tuple[tuple[str, Kind], ...] = (
            ("memory.max", "cgroup"),
            ("memory.high", "slows down"),
        )
        for name, kind in kinds:
            limit = reader.number(folder / name)
            if limit is not None:
                free = limit - _used(roots, reader, folder, "memory.current", "")
                yield Limit(kind, str(folder / name), limit, max(free, 0))


def _version_1(roots: Roots, reader: _Reader) -> Iterator[Limit]:
    for folder in _folders(roots.cgroup / "memory", _path_of(roots, reader, "memory")):
        file, stat = folder / "memory.limit_in_bytes", folder / "memory.stat"
        used = _used(roots, reader, folder, "memory.usage_in_bytes", "total_")
        limits = [(str(file), reader.number(file))]
        above = reader.table(stat).get("hierarchical_memory_limit")
        if above is not None:
            source = f"{stat} (hierarchical_memory_limit)"
            limits.append((source, reader.parse(above, source)))
        seen = set[int]()
        for source, limit in limits:
            if limit is not None and limit < _NO_LIMIT and limit not in seen:
                seen.add(limit)
                yield Limit("cgroup", source, limit, max(limit - used, 0))


def _used(roots: Roots, reader: _Reader, folder: Path, name: str, prefix: str) -> int:
    """Bytes in use in a cgroup and those below it, without page cache."""
    used = reader.number(folder / name)
    if used is None:  # at least what we have
        status = roots.proc / "self" / "status"
        used = reader.kilobytes(status, reader.table(status), "VmRSS") or 0
    stat = reader.table(folder / "memory.stat")
    for kind in ("inactive_file", "active_file"):
        text = stat.get(prefix + kind, stat.get(kind))
        if text is not None:
            used -= reader.parse(text, folder / "memory.stat") or 0
    return max(used, 0)


def _path_of(roots: Roots, reader: _Reader, controller: str) -> str | None:
    """The process's cgroup in the hierarchy that has the controller, "" for that of version 2."""
    for line in reader.text(roots.proc / "self" / "cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        is_version_2 = number == "0" and not controllers
        is_it = controller in controllers.split(",") if controller else is_version_2
        if is_it and path.startswith("/"):
            return path
    return None


def _folders(mount: Path, path: str | None) -> list[Path]:
    """The cgroup's folder and those above it, up to the mount's root."""
    if path is None:
        return []
    parts = [part for part in path.split("/") if part]
    if ".." in parts or not mount.joinpath(*parts).is_dir():
        return [mount]
    return [mount.joinpath(*parts[:count]) for count in range(len(parts), -1, -1)]


def _of_addresses(roots: Roots, reader: _Reader) -> Iterator[Limit]:
    path = roots.proc / "self" / "limits"
    status = roots.proc / "self" / "status"
    for line in reader.text(path).splitlines():
        for name, used_name in (("Max address space", "VmSize"), ("Max data size", "VmData")):
            words = line.removeprefix(name).split()
            if not line.startswith(name) or not words or words[0] == "unlimited":
                continue
            source = f"{path} ({name})"
            limit = reader.parse(words[0], source)
            if limit is not None:
                used = reader.kilobytes(status, reader.table(status), used_name) or 0
                yield Limit("addresses", source, limit, max(limit - used, 0))
