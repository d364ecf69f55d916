"""How processes that share a budget give memory to each other, with made-up engines and clock."""

from types import SimpleNamespace
from typing import Any

import pytest

import recoup
from recoup._memory import sharer
from recoup._memory.fair import fair_parts
from recoup._memory.share_group import file_of
from recoup._memory.sharer import Sharer

MIB = 1 << 20
TOTAL = 64 * MIB


class Shared:
    """The rows of all processes, and a clock."""

    def __init__(self) -> None:
        self.now = 100.0
        self.engines: list[Engine] = []

    def monotonic(self) -> float:
        return self.now

    def join(self, part: int) -> "Engine":
        engine = Engine(self, len(self.engines), part * MIB)
        self.engines.append(engine)
        return engine

    def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.05)):
            self.now += 0.05
            seen = [engine.share_parts() for engine in self.engines]
            for engine, parts in zip(self.engines, seen, strict=True):
                engine.seen = parts  # all look at the same time
            for engine in self.engines:
                engine.take_what_it_may()
                engine.sharer._workers.look()
                engine.sharer.look()
                engine.seen = None
            assert sum(engine.part for engine in self.engines) <= TOTAL

    @property
    def free(self) -> int:
        return TOTAL - sum(engine.part + engine.workers for engine in self.engines)


class Engine:
    """A scope that uses `use` bytes, of which `pinned` cannot be evicted."""

    def __init__(self, shared: Shared, process: int, part: int) -> None:
        self.shared, self.process, self.part = shared, process, part
        self.use = 0
        self.pinned = 0
        self.needs = 0
        self.waits_since = 0.0
        self.workers = self.demand = self.pressed = 0
        self.limit = 1 << 62
        self.given: list[int] = []
        self.seen: list[dict[str, Any]] | None = None
        self.sharer = Sharer(self, TOTAL)

    def take_what_it_may(self) -> None:
        """As the engine does when ops do not fit: takes what is free, or evicts."""
        if self.use > self.part:
            waiting = any(each.needs for each in self.shared.engines if each is not self)
            most = 0 if waiting else min(self.shared.free, self.limit - self.part)
            self.part += max(0, min(self.use - self.part, most))
            self.pressed += self.use > self.part

    def wait_for(self, size: int) -> None:
        self.needs, self.waits_since = size, self.shared.now

    def entered(self) -> bool:
        return True

    def stats(self) -> dict[str, int]:
        return {"pressed_allocations": self.pressed}

    def take_recent_peak(self) -> int:
        return min(self.use, self.part)

    def give(self, budget_bytes: int) -> bool:
        assert budget_bytes > 0
        if budget_bytes < self.pinned:
            return False
        self.given.append(self.part - budget_bytes)
        self.part = budget_bytes
        return True

    def publish_share(self, demand_bytes: int, worker_bytes: int) -> None:
        self.demand, self.workers = demand_bytes, worker_bytes

    def limit_share(self, limit_bytes: int) -> None:
        self.limit = limit_bytes

    def share_parts(self) -> list[dict[str, Any]]:
        return self.seen or [
            {
                "process": each.process,
                "is_own": each is self,
                "part": each.part,
                "workers": each.workers,
                "demand": each.demand,
                "needs": each.needs,
                "wait_ns": round((self.shared.now - each.waits_since) * 1e9) if each.needs else 0,
            }
            for each in self.shared.engines
        ]


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Shared:
    made = Shared()
    monkeypatch.setattr(sharer, "time", SimpleNamespace(monotonic=made.monotonic))
    monkeypatch.setattr(sharer, "worker_bytes", lambda others: 0)
    return made


@pytest.mark.parametrize(
    ("demands", "parts"),
    [
        ([10, 10, 10], [10, 10, 10]),
        ([100, 100], [30, 30]),
        ([100, 5, 100], [27, 5, 28]),
        ([5, 20, 100], [5, 20, 35]),
        ([], []),
    ],
)
def test_fair_parts(demands: list[int], parts: list[int]) -> None:
    assert fair_parts(60, demands) == parts


def test_no_fair_part_is_negative() -> None:
    assert fair_parts(-5, [10, 10]) == [0, 0]


def test_one_process_keeps_all(shared: Shared) -> None:
    one = shared.join(1)
    one.use = 100 * MIB
    shared.pass_time(1)
    assert one.part == TOTAL and not one.given


def test_unused_memory_goes_to_the_process_that_evicts(shared: Shared) -> None:
    one, other = shared.join(40), shared.join(1)
    one.use = 4 * MIB
    other.use = 100 * MIB
    shared.pass_time(8)  # what `one` used in the last seconds counts
    assert one.part <= 5 * MIB
    assert other.part == TOTAL - one.part


def test_processes_that_evict_have_equal_parts(shared: Shared) -> None:
    one, other = shared.join(63), shared.join(1)
    one.use = other.use = 100 * MIB
    shared.pass_time(2)
    assert abs(one.part - 32 * MIB) <= 2 * MIB
    assert abs(other.part - 32 * MIB) <= 2 * MIB
    given = list(one.given)
    shared.pass_time(5)
    assert one.given == given and not other.given  # it does not go on


def test_a_process_takes_more_again_when_the_others_need_less(shared: Shared) -> None:
    one, other = shared.join(63), shared.join(1)
    one.use = other.use = 100 * MIB
    shared.pass_time(2)
    other.use = 2 * MIB
    shared.pass_time(12)
    assert one.part >= 60 * MIB


def test_idle_memory_stays_where_it_is(shared: Shared) -> None:
    one, other = shared.join(60), shared.join(4)
    one.use, other.use = 2 * MIB, 4 * MIB
    shared.pass_time(10)
    assert not one.given and one.part == 60 * MIB


def test_the_largest_parts_serve_a_waiting_op_first(shared: Shared) -> None:
    one, other, waiting = shared.join(40), shared.join(12), shared.join(12)
    one.use, other.use, waiting.use = 100 * MIB, 100 * MIB, 12 * MIB
    shared.pass_time(0.05)
    waiting.wait_for(8 * MIB)
    shared.pass_time(0.1)
    assert shared.free >= 8 * MIB
    assert one.given and not other.given


def test_all_serve_an_op_that_waits_longer(shared: Shared) -> None:
    one, other, waiting = shared.join(40), shared.join(12), shared.join(12)
    one.use = one.pinned = 40 * MIB
    other.use, other.pinned = 12 * MIB, 2 * MIB
    shared.pass_time(0.05)
    waiting.wait_for(8 * MIB)
    shared.pass_time(0.1)
    assert shared.free == 0
    shared.pass_time(0.9)
    assert shared.free >= 8 * MIB
    assert not one.given and other.given


def test_a_process_gives_what_it_can(shared: Shared) -> None:
    one, waiting = shared.join(44), shared.join(20)
    one.use, one.pinned = 44 * MIB, 30 * MIB
    waiting.wait_for(24 * MIB)
    shared.pass_time(1)
    assert 11 * MIB <= sum(one.given) <= 14 * MIB


def test_many_processes_do_not_give_more_than_is_missing(shared: Shared) -> None:
    others = [shared.join(7) for _ in range(8)]
    waiting = shared.join(8)
    for each in others:
        each.use = 100 * MIB
    waiting.wait_for(4 * MIB)
    shared.pass_time(1)
    assert 4 * MIB <= sum(sum(each.given) for each in others) <= 6 * MIB


def test_a_process_without_tensors_keeps_a_little(shared: Shared) -> None:
    idle, waiting = shared.join(1), shared.join(63)
    waiting.use = 100 * MIB
    shared.pass_time(8)
    waiting.wait_for(8 * MIB)
    shared.pass_time(2)
    assert idle.part > 0


def test_an_op_that_waits_is_not_asked(shared: Shared) -> None:
    one, other = shared.join(40), shared.join(24)
    one.wait_for(8 * MIB)
    other.wait_for(8 * MIB)
    shared.pass_time(1)
    assert not one.given and not other.given


def test_workers_that_exceed_the_total_are_paid_for(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = shared.join(32), shared.join(32)
    one.use = other.use = 100 * MIB
    shared.pass_time(0.5)
    monkeypatch.setattr(sharer, "worker_bytes", lambda others: 5 * MIB)
    shared.pass_time(3)
    assert one.workers == other.workers == 5 * MIB
    assert shared.free >= 0
    assert abs(one.part - 27 * MIB) <= 2 * MIB


def test_an_error_of_a_look_is_a_warning_once(shared: Shared) -> None:
    one = shared.join(4)
    one.sharer.begin()
    one.share_parts = lambda: 1 // 0  # type: ignore[assignment,method-assign,return-value]
    with pytest.warns(recoup.RecoupWarning, match="gives no memory"):
        one.sharer.look_safely()
    one.sharer.look_safely()  # warnings are errors


def test_a_group_is_the_parent_or_a_name() -> None:
    assert file_of("node") == file_of("node")
    assert file_of("group:a") != file_of("group:b")
    assert file_of("group:a").endswith("-group-a")
