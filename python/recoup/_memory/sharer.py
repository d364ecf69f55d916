"""Divides one budget among the processes of a machine: `recoup.budget(..., share="node")`.

The engine takes free bytes of the shared budget when an op does not fit, and waits before an op
fails (csrc/share/shared_budget.h). A thread of each process looks at the parts of all processes 20
times a second, and gives memory to the others:

- While an op of another process waits, the processes with more than a fair part give what that op
  lacks, in proportion to the excess, as far as tensors can be evicted; after 0.2 seconds all do.
- If another process evicts tensors and has less than a fair part, a process with more than a fair
  part gives of the difference, and takes no more than a fair part until that has ended.
- If workers have made the sum exceed the total, the processes with more than a fair part give that.

Fair parts are max-min fair: a process that evicts could use everything, and another one what it has
used in the last seconds. Memory that no other process could use stays where it is.
"""

import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

from recoup._memory.fair import fair_parts
from recoup._memory.looking import Looker
from recoup._memory.workers import worker_bytes

# A process counts as one that evicts, and its use as a demand, for this time.
_SECONDS_OF_DEMAND = 5.0
_SECONDS_FOR_OTHERS = 0.2
_SECONDS_BETWEEN_FAILURES = 0.2
# A part is fair if it differs from the fair one by at most one part of the total in this number.
_SLACK = 64
_NO_LIMIT = 1 << 62


class SharingEngine(Protocol):
    """The part of `_C.Engine` that is used here."""

    def entered(self) -> bool: ...
    def stats(self) -> dict[str, int]: ...
    def take_recent_peak(self) -> int: ...
    def give(self, budget_bytes: int) -> bool: ...
    def publish_share(self, demand_bytes: int, worker_bytes: int) -> None: ...
    def limit_share(self, limit_bytes: int) -> None: ...
    def share_parts(self) -> list[dict[str, Any]]: ...


class _Workers(Looker):
    """Measures the workers' memory on a thread of its own.

    The thread of a Sharer waits for the engine's lock, which an op holds while it waits for memory,
    such as that of workers that end.
    """

    pause = 1.0

    def __init__(self, engine: SharingEngine) -> None:
        super().__init__(engine.entered)
        self._engine = engine
        self.bytes = 0
        """Memory of the workers, in bytes."""
        self.demand = 0
        """The demand to publish with it, in bytes."""

    def complaint(self, error: Exception) -> str:
        """The warning for a look that failed."""
        return f"recoup: the memory of worker processes is not measured now: {error}"

    def look(self) -> None:
        """Measures and publishes it once."""
        self.bytes = worker_bytes({part["process"] for part in self._engine.share_parts()})
        self._engine.publish_share(self.demand, self.bytes)


class Sharer(Looker):
    """Gives memory of one scope to the other processes, from `begin` to `stop`."""

    def __init__(self, engine: SharingEngine, total_bytes: int) -> None:
        """total_bytes: the budget of all processes."""
        super().__init__(engine.entered)
        self._engine = engine
        self._total = total_bytes
        self._slack = total_bytes // _SLACK
        self._peaks: deque[tuple[float, int]] = deque()
        self._pressed_allocations = 0
        self._pressed_until = 0.0
        self._workers = _Workers(engine)
        self._next_try = 0.0
        self._is_limited = False

    def start(self) -> None:
        """Starts the threads, which do nothing until `begin`."""
        self._workers.start()
        super().start()

    def begin(self) -> None:
        """Divides the budget now, and from now on. The scope is open."""
        self._workers.begin()
        super().begin()

    def stop(self) -> None:
        """Ends the threads. Call it again if an interrupt ended the call."""
        self._workers.stop()
        super().stop()

    def widen(self) -> None:
        """Lets the scope take all that is free, as its end restores all tensors.

        If the end fails, the part stays as it is, and the others need not leave more for it.
        """
        self._limit(_NO_LIMIT)
        self._engine.publish_share(0, self._workers.bytes)

    def complaint(self, error: Exception) -> str:
        """The warning for a look that failed."""
        return f"recoup: this process gives no memory of the shared budget now: {error}"

    def look(self) -> None:
        """Looks at all parts once, and gives memory if others need it more."""
        now = time.monotonic()
        demand = self._workers.demand = self._measured_demand(now)
        self._engine.publish_share(demand, self._workers.bytes)
        parts = self._engine.share_parts()
        own = [part["is_own"] for part in parts].index(True)
        if parts[own]["needs"] > 0 or now < self._next_try:
            return
        for_all = self._total - sum(part["workers"] for part in parts)
        fair = fair_parts(for_all, [part["demand"] for part in parts])
        free = for_all - sum(part["part"] for part in parts)
        least = max(self._total // max(_SLACK, 4 * len(parts)), 1)
        exceeds = [
            max(0, part["part"] - max(its, least)) for part, its in zip(parts, fair, strict=True)
        ]
        waits = [part["wait_ns"] / 1e9 for part in parts if part["needs"] > 0]
        if waits:
            missing = sum(part["needs"] for part in parts) - free
            if max(waits) > _SECONDS_FOR_OTHERS:
                exceeds = [0 if part["needs"] else max(0, part["part"] - least) for part in parts]
            # More than the own share of it if others cannot give theirs.
            again = min(int(max(waits) / _SECONDS_FOR_OTHERS), 10)
            self._give_share(parts, own, exceeds, missing, most=2**again)
        else:
            self._balance(parts, own, fair, exceeds, free)

    def _balance(
        self,
        parts: list[dict[str, Any]],
        own: int,
        fair: Sequence[int],
        exceeds: Sequence[int],
        free: int,
    ) -> None:
        """Brings the parts closer to fair ones, if a process evicts or workers have grown."""
        lacks = sum(
            its - part["part"]
            for part, its in zip(parts, fair, strict=True)
            if not part["is_own"] and part["part"] + self._slack < its
        )
        self._limit(max(parts[own]["part"], fair[own]) if lacks else _NO_LIMIT)
        if exceeds[own] > self._slack or free < 0:
            self._give_share(parts, own, exceeds, lacks - free)
            if lacks:
                self._limit(fair[own])

    def _give_share(
        self,
        parts: list[dict[str, Any]],
        own: int,
        exceeds: Sequence[int],
        missing: int,
        most: int = 1,
    ) -> None:
        """Gives this process's share of `missing`, or `most` times as much."""
        if missing > 0 and exceeds[own] > 0:
            share = -(-missing * exceeds[own] // sum(exceeds))
            given = min(most * share, missing, exceeds[own])
            self._give(parts[own]["part"], parts[own]["part"] - given)

    def _measured_demand(self, now: float) -> int:
        """The budget that the scope could use: everything while it evicts, else what it uses."""
        pressed = self._engine.stats()["pressed_allocations"]
        if pressed > self._pressed_allocations:
            self._pressed_until = now + _SECONDS_OF_DEMAND
        self._pressed_allocations = pressed
        self._peaks.append((now, self._engine.take_recent_peak()))
        while self._peaks[0][0] < now - _SECONDS_OF_DEMAND:
            self._peaks.popleft()
        if now < self._pressed_until:
            return self._total
        return max(peak for _, peak in self._peaks)

    def _limit(self, most: int) -> None:
        if most < _NO_LIMIT or self._is_limited:
            self._is_limited = most < _NO_LIMIT
            self._engine.limit_share(most)

    def _give(self, part: int, wanted: int) -> None:
        """Reduces the part, as far as the tensors that cannot be evicted allow."""
        for size in (wanted, (wanted + part) // 2, (wanted + 3 * part) // 4):
            if size >= part or self._engine.give(size):
                return
        self._next_try = time.monotonic() + _SECONDS_BETWEEN_FAILURES
