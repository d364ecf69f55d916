"""The memory that this process may still take, and the file that limits it.

The lowest of these limits counts:

- physical memory: `MemAvailable` of /proc/meminfo, which counts page cache as free;
- every cgroup of the process up to the root. Version 2: `memory.max`, and `memory.high`, above
  which the kernel slows a process down. Version 1: `memory.limit_in_bytes`, and in `memory.stat`
  the limit of parent cgroups that a container does not see. The page cache of files counts as free
  there too, because the kernel drops it before it kills a process;
- `ulimit -v` and `ulimit -d`, which count addresses.

Swap does not count. A missing file means no limit. Content that is no number is reported in
`Memory.problems` and means no limit either.

cgroups are looked up where systemd and containers mount them: version 2 at /sys/fs/cgroup, or in
its folder `unified` next to those of version 1, whose memory controller is in `memory`. A path that
does not exist, as in a container that shares the host's names, means the root of the mount.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Kind = Literal["physical", "cgroup", "slows down", "addresses"]


@dataclass(frozen=True)
class Roots:
    """Directories of the system's files. Tests replace them."""

    proc: Path = Path("/proc")
    cgroup: Path = Path("/sys/fs/cgroup")


REAL = Roots()
_roots = REAL


def set_roots(roots: Roots) -> None:
    """Reads all files from these directories from now on. For tests, with limits made up."""
    global _roots
    _roots = roots


@dataclass(frozen=True)
class Limit:
    """A limit on this process's memory, alone or shared with other processes."""

    kind: Kind
    source: str
    """The file, and its line if it has several."""
    limit_bytes: int
    """Total bytes that the limit allows."""
    free_bytes: int
    """Bytes that are unused, or used as page cache only; at least 0."""


@dataclass
class Memory:
    """The limits that were found."""

    limits: list[Limit] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """Files that could not be read, and content that is no number."""

    @property
    def free(self) -> Limit:
        """The limit with the fewest free bytes."""
        return min(self.limits, key=lambda each: each.free_bytes)

    @property
    def most(self) -> Limit:
        """The lowest limit on memory: a process that takes more is killed."""
        memory = [each for each in self.limits if each.kind in ("physical", "cgroup")]
        return min(memory, key=lambda each: each.limit_bytes)


def current_roots() -> Roots:
    """The directories from which all files are read."""
    return _roots


def look(roots: Roots | None = None) -> Memory:
    """The current limits. There is always one: that of physical memory."""
    return Places(roots or _roots).look(addresses=True)


class Places:
    """The files that have the limits of this process, found once to be read often."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._problems: list[str] = []
        reader = Reader(self._problems)
        self._cgroups = [*_version_2(roots, reader), *_version_1(roots, reader)]

    def look(self, *, addresses: bool) -> Memory:
        """The limits now. addresses: also those of `ulimit`, on addresses."""
        memory = Memory(problems=list(self._problems))
        reader = Reader(memory.problems)
        memory.limits.append(_physical(self._roots, reader))
        for cgroup in self._cgroups:
            memory.limits += cgroup.limits(self._roots, reader)
        if addresses:
            memory.limits += _of_addresses(self._roots, reader)
        return memory


class Reader:
    """Reads numbers from files; None if there is none."""

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
        """The content of a file that holds one number; None for `max`."""
        text = self.text(path).strip()
        return None if text in ("", "max") else self.parse(text, path)

    def parse(self, text: str, source: object) -> int | None:
        if text.isascii() and text.isdecimal() and len(text) < 20:
            return int(text)
        self._problems.append(f"{source} says {text[:40]!r}, which is not a number of bytes")
        return None

    def table(self, path: Path) -> dict[str, str]:
        """The values of lines `name value` or `name: value kB`, by name."""
        rows = (line.replace(":", " ", 1).split(None, 1) for line in self.text(path).splitlines())
        return {row[0]: row[1] for row in rows if len(row) == 2}

    def kilobytes(self, path: Path, table: dict[str, str], name: str) -> int | None:
        """A row of /proc/meminfo or /proc/self/status, in bytes."""
        if name not in table:
            return None
        count = self.parse(table[name].removesuffix("kB").strip(), f"{path} ({name})")
        return None if count is None else count * 1024


def _physical(roots: Roots, reader: Reader) -> Limit:
    path = roots.proc / "meminfo"
    table = reader.table(path)
    total = reader.kilobytes(path, table, "MemTotal")
    if total is None:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    free = reader.kilobytes(path, table, "MemAvailable")
    if free is None:
        # A lower bound, which is the safe side: it leaves out page cache.
        free = reader.kilobytes(path, table, "MemFree")
    if free is None:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Limit("physical", str(path), total, min(free, total))


# Version 1 represents "no limit" by the largest number of pages that it can hold.
_NO_LIMIT = 1 << 60


def mount_of_version_2(roots: Roots) -> Path:
    """The folder in which the hierarchy of version 2 is mounted."""
    is_pure = (roots.cgroup / "cgroup.controllers").exists()
    return roots.cgroup if is_pure else roots.cgroup / "unified"


def _version_2(roots: Roots, reader: Reader) -> Iterator["_Cgroup"]:
    for folder in folders_of(mount_of_version_2(roots), path_of(roots, reader, "")):
        limits: dict[str, Kind] = {"memory.max": "cgroup", "memory.high": "slows down"}
        yield _Cgroup(folder, limits, "memory.current", "", has_limits_above=False)


def _version_1(roots: Roots, reader: Reader) -> Iterator["_Cgroup"]:
    for folder in folders_of(roots.cgroup / "memory", path_of(roots, reader, "memory")):
        limits: dict[str, Kind] = {"memory.limit_in_bytes": "cgroup"}
        yield _Cgroup(folder, limits, "memory.usage_in_bytes", "total_", has_limits_above=True)


@dataclass(frozen=True)
class _Cgroup:
    """The files of a cgroup."""

    folder: Path
    files: Mapping[str, Kind]
    """Files with a limit."""
    used: str
    """The file with the used bytes, of the cgroup and its children."""
    prefix: str
    """Of the rows in `memory.stat` that include its children."""
    has_limits_above: bool
    """Whether `memory.stat` has the lowest limit of its parents."""

    def limits(self, roots: Roots, reader: Reader) -> Iterator[Limit]:
        """Its limits, each once."""
        found: dict[int, tuple[Kind, str]] = {}
        for name, kind in self.files.items():
            limit = reader.number(self.folder / name)
            if limit is not None and limit < _NO_LIMIT:
                found.setdefault(limit, (kind, str(self.folder / name)))
        if not found and not self.has_limits_above:
            return
        stat = self.folder / "memory.stat"
        table = reader.table(stat)
        above = table.get("hierarchical_memory_limit") if self.has_limits_above else None
        if above is not None:
            source = f"{stat} (hierarchical_memory_limit)"
            limit = reader.parse(above, source)
            if limit is not None and limit < _NO_LIMIT:
                found.setdefault(limit, ("cgroup", source))
        used = self._used(roots, reader, table) if found else 0
        for limit, (kind, source) in found.items():
            yield Limit(kind, source, limit, max(limit - used, 0))

    def _used(self, roots: Roots, reader: Reader, stat: Mapping[str, str]) -> int:
        """Used bytes without page cache."""
        used = reader.number(self.folder / self.used)
        if used is None:  # at least the memory of this process
            status = roots.proc / "self" / "status"
            used = reader.kilobytes(status, reader.table(status), "VmRSS") or 0
        for kind in ("inactive_file", "active_file"):
            text = stat.get(self.prefix + kind, stat.get(kind))
            if text is not None:
                used -= reader.parse(text, self.folder / "memory.stat") or 0
        return max(used, 0)


def path_of(roots: Roots, reader: Reader, controller: str) -> str | None:
    """The process's cgroup in the hierarchy of the controller; "" stands for that of version 2."""
    for line in reader.text(roots.proc / "self" / "cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        is_version_2 = number == "0" and not controllers
        is_it = controller in controllers.split(",") if controller else is_version_2
        if is_it and path.startswith("/"):
            return path
    return None


def folders_of(mount: Path, path: str | None) -> list[Path]:
    """The cgroup's folder and its parents, up to the root of the mount."""
    if path is None:
        return []
    parts = [part for part in path.split("/") if part]
    if ".." in parts or not mount.joinpath(*parts).is_dir():
        return [mount]
    return [mount.joinpath(*parts[:count]) for count in range(len(parts), -1, -1)]


def _of_addresses(roots: Roots, reader: Reader) -> Iterator[Limit]:
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
