"""Whether the process's cgroup is short of memory, as the kernel reports it.

Two files of version 2 say so, in the process's cgroup: `memory.pressure`, whose line `full` counts
the time in which no process of the cgroup could run because all waited for memory, and
`memory.events`, whose line `oom_kill` counts processes that the kernel has killed. Without a cgroup
/proc/pressure/memory has the pressure of the machine. Version 1 has only a count of killed
processes, in `memory.oom_control`. A missing file means no strain.
"""

import time
from collections.abc import Iterator
from pathlib import Path

from recoup._memory import machine
from recoup._memory.machine import Reader

_SECONDS_BETWEEN_LOOKS = 0.5
_WINDOW_SECONDS = 1.0
_FRACTION = 0.2
_SECONDS_AFTER = 5.0


class Strain:
    """Compares each look with the one before."""

    def __init__(self) -> None:
        self._next = 0.0
        self._killed: int | None = None
        self._stalled: tuple[float, int] | None = None
        self._until = 0.0

    def is_high(self) -> bool:
        """Whether memory is short now, or was in the last seconds. Call it often."""
        now, reader = time.monotonic(), Reader([])
        if now < self._next:
            return now < self._until
        self._next = now + _SECONDS_BETWEEN_LOOKS
        killed = max(_killed(reader), default=0)
        if self._killed is not None and killed > self._killed:
            self._until = now + _SECONDS_AFTER
        self._killed = killed
        stalled_us = max(_stalled_us(reader), default=0)
        if self._stalled is None:
            self._stalled = now, stalled_us
        since, before_us = self._stalled
        if now - since >= _WINDOW_SECONDS:
            if stalled_us - before_us > _FRACTION * (now - since) * 1e6:
                self._until = now + _SECONDS_AFTER
            self._stalled = now, stalled_us
        return now < self._until


def _killed(reader: Reader) -> Iterator[int]:
    for folder, file in ((_own("", reader), "memory.events"), (_own("memory", reader), _V1)):
        if folder is not None:
            text = reader.table(folder / file).get("oom_kill", "0")
            yield reader.parse(text, folder / file) or 0


_V1 = "memory.oom_control"


def _stalled_us(reader: Reader) -> Iterator[int]:
    folder = _own("", reader)
    files = [] if folder is None else [folder / "memory.pressure"]
    files.append(machine.current_roots().proc / "pressure" / "memory")
    for path in files:
        for line in reader.text(path).splitlines():
            words = line.split()
            if words[:1] == ["full"] and words[-1].startswith("total="):
                yield reader.parse(words[-1].removeprefix("total="), path) or 0
                return


def _own(controller: str, reader: Reader) -> Path | None:
    """The folder of the process's own cgroup; None if there is none."""
    roots = machine.current_roots()
    mount = roots.cgroup / "memory" if controller else machine.mount_of_version_2(roots)
    return next(iter(machine.folders_of(mount, machine.path_of(roots, reader, controller))), None)
