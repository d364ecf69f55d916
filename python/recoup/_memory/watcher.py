"""Fits the budget of an open scope to the memory that other processes leave: `adapt=True`.

A thread looks at the machine's memory 20 times a second, or 5 times while 1/8 of the lowest limit
would stay free if the scope used all its budget. The memory that the scope may have is what its
pool and the tensors outside of it take now, plus what is free according to the lowest limit of
`recoup._memory.machine`, less a reserve:

- the code and other mapped files of the process, which the kernel counts as free;
- 1/64 of the limit, and at least 32 MiB, for memory that other processes take between two looks;
- 1/16 of the limit instead, for some seconds, after the kernel has killed a process in the cgroup,
  or if all its processes have waited for memory for a fifth of the time;
- twice what other processes took since the last look, at most 1/16 of the limit.

If that is less than the budget, the budget is reduced before the next op, to a little less, so that
not every look reduces it again. It is increased when the memory that the scope may have has
exceeded it for two seconds, and never beyond what the user allowed. Limits of addresses are left
out: a pool that exists takes no more of them.
"""

import time
from collections import deque
from typing import Protocol

from recoup._memory import machine, resident
from recoup._memory.looking import Looker
from recoup._memory.machine import Limit, Places
from recoup._memory.strain import Strain
from recoup.errors import OutOfBudgetError
from recoup.rows import BudgetChange

_SECONDS_BETWEEN_LOOKS = 0.05
_SECONDS_BETWEEN_LOOKS_IF_FREE = 0.2
_MUCH = 8
_SECONDS_BETWEEN_SEARCHES = 5.0
_SECONDS_UNTIL_GROWTH = 2.0
_SECONDS_BETWEEN_FAILURES = 1.0
_LEAST_RESERVE = 32 << 20
# Reserve, reserve under strain, and the most that other processes are expected to take next: parts
# of the limit.
_RESERVE = 64
_RESERVE_UNDER_STRAIN = 16
_MOST_AHEAD = 16
# A budget is reduced by one part in this number more than necessary, and increased only if it grows
# by twice that.
_SLACK = 64
_LEAST_BUDGET = 1 << 20
# Mapped files may grow by this much, such as libraries that are loaded; data sets are left out.
_MORE_FILES = 128 << 20


class WatchedEngine(Protocol):
    """The part of `_C.Engine` that is used here."""

    def entered(self) -> bool: ...
    def stats(self) -> dict[str, int]: ...
    def committed_bytes(self) -> int: ...
    def set_budget(self, budget_bytes: int) -> None: ...


class Watcher(Looker):
    """Changes the budget of one scope from `begin` to `stop`."""

    def __init__(self, engine: WatchedEngine, most_bytes: int) -> None:
        """most_bytes: the largest budget that the user allows."""
        super().__init__(engine.entered)
        self._engine = engine
        self.most_bytes = most_bytes
        """The largest budget that the user allows."""
        self._strain = Strain()
        self._is_strained = False
        self._places: tuple[float, Places] | None = None
        self._most_files = resident.process().files + _MORE_FILES
        # What the scope could have without a reserve, by time, in the last seconds, and the source.
        self._recent: deque[tuple[float, int]] = deque()
        self._source = ""
        self._next_try = 0.0
        self._began_ns = 0
        self._changes: list[BudgetChange] = []

    @property
    def changes(self) -> list[BudgetChange]:
        """The changes so far, in order."""
        return list(self._changes)

    def begin(self) -> None:
        """Fits the budget now, and from now on. The scope is open."""
        self._began_ns = time.monotonic_ns()
        super().begin()

    def widen(self) -> None:
        """Gives the scope all that it may have, as the end of the scope restores all tensors."""
        free = self._lowest()
        size = min(self.most_bytes, self._could(free) - self._reserve(free))
        if size > self._engine.stats()["budget_bytes"]:
            self._set(size, free)

    def complaint(self, error: Exception) -> str:
        """The warning for a look that failed."""
        return f"recoup: the budget does not follow the machine's memory now: {error}"

    def look(self) -> None:
        """Looks at the memory of the machine once, and changes the budget if necessary."""
        now, free = time.monotonic(), self._lowest()
        could = self._could(free)
        if free.source != self._source:
            self._recent.clear()
        self._source = free.source
        least = min((each for _, each in self._recent), default=could)
        fell = max(0, least - could)
        self._recent.append((now, could))
        while len(self._recent) > 1 and self._recent[1][0] <= now - _SECONDS_UNTIL_GROWTH:
            self._recent.popleft()
        self._is_strained = self._strain.is_high()
        reserve = self._reserve(free)
        may_have = could - reserve
        has_much = may_have - self.most_bytes > free.limit_bytes // _MUCH
        self.pause = _SECONDS_BETWEEN_LOOKS_IF_FREE if has_much else _SECONDS_BETWEEN_LOOKS
        ahead = min(2 * fell, free.limit_bytes // _MOST_AHEAD)
        budget = self._engine.stats()["budget_bytes"]
        if budget > self.most_bytes:  # could not be undone at once, see _set
            self._set(self.most_bytes, free)
        elif may_have - ahead < budget:
            if now >= self._next_try:
                self._reduce(budget, may_have - ahead, free)
        elif self._recent[0][0] <= now - _SECONDS_UNTIL_GROWTH:
            size = min(self.most_bytes, min(each for _, each in self._recent) - reserve)
            if size > budget + 2 * (budget // _SLACK) or size == self.most_bytes > budget:
                self._set(size, free)

    def _lowest(self) -> Limit:
        """The limit with the fewest free bytes."""
        now = time.monotonic()
        if self._places is None or now > self._places[0]:
            # A process can be moved to another cgroup.
            places = Places(machine.current_roots())
            self._places = now + _SECONDS_BETWEEN_SEARCHES, places
        return self._places[1].look(addresses=False).free

    def _could(self, free: Limit) -> int:
        """Bytes that the scope takes, and that are free."""
        process = resident.process()
        # The engine counts pages when they are allocated, which may not have been written yet.
        takes = min(self._engine.committed_bytes(), process.taken - process.files)
        return takes + free.free_bytes

    def _reserve(self, free: Limit) -> int:
        part = _RESERVE_UNDER_STRAIN if self._is_strained else _RESERVE
        files = min(resident.process().files, self._most_files)
        return max(free.limit_bytes // part, _LEAST_RESERVE) + files

    def _reduce(self, budget: int, may_have: int, free: Limit) -> None:
        """Reduces the budget, as far as the tensors that cannot be evicted allow."""
        size = min(budget, max(may_have - may_have // _SLACK, _LEAST_BUDGET))
        for wanted in (size, (size + budget) // 2, (size + 3 * budget) // 4):
            if self._set(wanted, free):
                return
        self._next_try = time.monotonic() + _SECONDS_BETWEEN_FAILURES

    def _set(self, size: int, free: Limit) -> bool:
        before = self._engine.stats()["budget_bytes"]
        if size == before:
            return True
        try:
            self._engine.set_budget(size)
            if size > self.most_bytes:  # the user has reduced it in the meantime
                size = self.most_bytes
                self._engine.set_budget(size)
        except OutOfBudgetError:
            return False
        self._changes.append(
            BudgetChange(
                start_ns=time.monotonic_ns() - self._began_ns,
                before_bytes=before,
                after_bytes=size,
                free_bytes=free.free_bytes,
                source=free.source,
            )
        )
        return True
