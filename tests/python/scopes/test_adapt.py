"""When a budget with adapt=True changes, on a made-up machine and clock."""

import itertools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

import recoup
from made_up_machine import GIB, LeaveFree, limited, made_up, version_1, version_2, write
from recoup._memory import machine, resident, strain, watcher
from recoup._memory.strain import Strain
from recoup._memory.watcher import Watcher

MIB = 1 << 20

# A process without mapped files, whose tensors may take any memory.
NO_FILES = SimpleNamespace(process=lambda: resident.Process(taken=1 << 50, files=0))


class Clock:
    """A made-up `time` module."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def monotonic_ns(self) -> int:
        return round(self.now * 1e9)


class Engine:
    """A budget of which `committed` bytes are in use, and `least` cannot be evicted."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.committed = 0
        self.least = 0
        self.refused: list[int] = []

    def entered(self) -> bool:
        return True

    def stats(self) -> dict[str, int]:
        return {"budget_bytes": self.budget}

    def committed_bytes(self) -> int:
        return self.committed

    def set_budget(self, budget_bytes: int) -> None:
        if budget_bytes < self.least:
            self.refused.append(budget_bytes)
            raise recoup.OutOfBudgetError
        self.committed = min(self.committed, budget_bytes)
        self.budget = budget_bytes


class Scene:
    """A made-up machine with one scope: other processes take memory from it."""

    def __init__(self, leave: LeaveFree, clock: Clock, budget: int, most: int) -> None:
        self._leave, self.clock = leave, clock
        self.engine = Engine(budget)
        self.watcher = Watcher(self.engine, most)
        self.others = 0

    def use(self, committed: int) -> None:
        self.engine.committed = committed

    def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.05)):
            self.clock.now += 0.05
            # The cgroup of 2 GiB has this process and the others.
            self._leave(max(0, 2 * GIB - self.engine.committed - self.others))
            self.watcher.look()


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], Scene]:
    clock = Clock()
    leave = limited(tmp_path, monkeypatch)
    for module in (watcher, strain):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(watcher, "resident", NO_FILES)
    return lambda budget, most: Scene(leave, clock, budget, most)


# ---- when the budget changes ----


def test_a_budget_stays_while_memory_is_free(scene: Callable[[int, int], Scene]) -> None:
    it = scene(GIB, GIB)
    for used in (0, 500 * MIB, GIB):
        it.use(used)
        it.pass_time(5)
    assert it.engine.budget == GIB and it.watcher.changes == []


def test_a_budget_is_reduced_when_others_take_memory_and_increased_when_they_leave(
    scene: Callable[[int, int], Scene],
) -> None:
    it = scene(GIB, GIB)
    it.use(GIB)
    for it.others in range(0, 1600 * MIB, 10 * MIB):
        it.pass_time(0.05)
        # What the scope has and what it may still take is never more than the rest.
        assert it.engine.budget + it.others <= 2 * GIB
    reduced = it.engine.budget
    assert 350 * MIB < reduced < 448 * MIB
    it.pass_time(10)
    assert it.engine.budget >= reduced  # no spiral
    it.others = 0
    it.pass_time(1.5)
    assert it.engine.budget < GIB  # not at once
    it.pass_time(2)
    assert it.engine.budget == GIB
    changes = it.watcher.changes
    assert changes[0].before_bytes == changes[-1].after_bytes == GIB
    for before, after in itertools.pairwise(changes):
        assert before.after_bytes == after.before_bytes
        assert before.start_ns < after.start_ns
    assert {change.source for change in changes} == {machine.look().free.source}


def test_a_budget_does_not_swing_with_its_own_use(scene: Callable[[int, int], Scene]) -> None:
    it = scene(1900 * MIB, 1900 * MIB)
    it.others = 500 * MIB
    it.pass_time(3)
    changes = len(it.watcher.changes)
    for step in range(100):
        it.use(it.engine.budget if step % 2 else it.engine.budget // 4)
        it.pass_time(0.5)
    assert len(it.watcher.changes) == changes


def test_memory_that_comes_and_goes_quickly_is_left_alone(
    scene: Callable[[int, int], Scene],
) -> None:
    it = scene(GIB, GIB)
    it.others = 1400 * MIB
    it.pass_time(1)
    changes = len(it.watcher.changes)
    for step in range(40):
        it.others = 1400 * MIB if step % 2 else 800 * MIB
        it.pass_time(1)
    assert len(it.watcher.changes) == changes


def test_a_budget_never_exceeds_what_the_user_allows(scene: Callable[[int, int], Scene]) -> None:
    it = scene(512 * MIB, 768 * MIB)
    it.pass_time(10)
    assert it.engine.budget == 768 * MIB


def test_a_budget_that_the_user_reduces_meanwhile(
    scene: Callable[[int, int], Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watcher has decided to increase it, and waits for the engine."""
    it = scene(512 * MIB, GIB)
    set_budget = it.engine.set_budget

    def after_the_user(budget_bytes: int) -> None:
        it.watcher.most_bytes = 600 * MIB
        set_budget(budget_bytes)

    monkeypatch.setattr(it.engine, "set_budget", after_the_user)
    it.pass_time(5)
    assert it.engine.budget == 600 * MIB
    assert it.watcher.changes[-1].after_bytes == 600 * MIB


def test_a_budget_is_reduced_as_far_as_possible(scene: Callable[[int, int], Scene]) -> None:
    it = scene(GIB, GIB)
    it.use(GIB)
    it.engine.least = 800 * MIB
    it.others = 1600 * MIB
    it.pass_time(0.05)
    assert it.engine.least <= it.engine.budget < GIB
    tries = len(it.engine.refused)
    it.pass_time(0.9)
    assert len(it.engine.refused) <= tries + 3  # not at every look
    it.pass_time(20)
    assert it.engine.budget < 830 * MIB


def test_another_lowest_limit_is_no_fall(
    scene: Callable[[int, int], Scene], tmp_path: Path
) -> None:
    it = scene(GIB, GIB)
    it.use(100 * MIB)
    it.pass_time(1)
    roots = machine.current_roots()
    version_2(roots, ".", 3 * GIB, GIB + 990 * MIB)  # less is free there, but enough
    it.clock.now += 10
    it.watcher.look()
    assert it.engine.budget == GIB


def test_memory_that_fluctuates_by_pages_changes_nothing(
    scene: Callable[[int, int], Scene],
) -> None:
    it = scene(GIB, GIB)
    it.others = 1500 * MIB
    it.pass_time(3)
    changes = len(it.watcher.changes)
    for step in range(200):
        it.others = 1500 * MIB - 4096 * (step % 7)
        it.pass_time(0.1)
    assert len(it.watcher.changes) == changes


def test_an_error_of_a_look_is_a_warning(scene: Callable[[int, int], Scene]) -> None:
    it = scene(GIB, GIB)
    it.watcher.begin()
    stats = it.engine.stats
    it.engine.stats = lambda: 1 / 0  # type: ignore[assignment, method-assign, return-value]
    with pytest.warns(recoup.RecoupWarning, match="does not follow the machine's memory now"):
        it.watcher.look_safely()
    it.watcher.look_safely()  # warned once
    it.engine.stats = stats  # type: ignore[method-assign]
    it.others = 1500 * MIB
    it._leave(0)
    it.watcher.look_safely()
    assert it.engine.budget < GIB


def test_the_end_of_a_scope_may_use_what_is_free(scene: Callable[[int, int], Scene]) -> None:
    it = scene(GIB, GIB)
    it.use(GIB)
    it.others = 1500 * MIB
    it.pass_time(1)
    assert it.engine.budget < 548 * MIB
    it.others = 800 * MIB
    it.pass_time(0.05)
    it.watcher.widen()
    assert it.engine.budget == GIB
    it.watcher.widen()
    assert it.engine.budget == GIB


# ---- strain ----


def pressure(path: Path, seconds: float) -> None:
    some = "some avg10=99.00 avg60=0.00 avg300=0.00 total=123456789"
    full = f"full avg10=0.00 avg60=0.00 avg300=0.00 total={round(seconds * 1e6)}"
    write(path, f"{some}\n{full}")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(strain, "time", clock)
    return clock


@pytest.mark.parametrize("has_cgroup", [True, False])
def test_waiting_for_memory_is_strain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock, has_cgroup: bool
) -> None:
    roots = made_up(tmp_path, cgroup="0::/job" if has_cgroup else "")
    monkeypatch.setattr(machine, "_roots", roots)
    folder = version_2(roots, "job", 2 * GIB, GIB)
    file = folder / "memory.pressure" if has_cgroup else roots.proc / "pressure/memory"
    found = Strain()
    waited = 5.0
    seen = []
    for rate in [0.0] * 30 + [0.1] * 30 + [0.5] * 30 + [0.0] * 200:
        pressure(file, waited)
        clock.now += 0.05
        waited += 0.05 * rate
        seen.append(found.is_high())
    assert not any(seen[:61])
    assert all(seen[85:180])
    assert not any(seen[-40:])


@pytest.mark.parametrize("version", [1, 2])
def test_a_killed_process_is_strain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock, version: int
) -> None:
    roots = made_up(tmp_path, cgroup="0::/job" if version == 2 else "4:memory:/job")
    monkeypatch.setattr(machine, "_roots", roots)
    if version == 2:
        file = version_2(roots, "job", 2 * GIB, GIB) / "memory.events"
    else:
        file = version_1(roots, "job", 2 * GIB, GIB) / "memory.oom_control"
    write(file, "low 0\nmax 7\noom_kill 3")
    found = Strain()
    assert not found.is_high()
    clock.now += 1
    write(file, "low 0\nmax 900\noom_kill 3")
    assert not found.is_high()  # page cache was reclaimed
    clock.now += 1
    write(file, "low 0\nmax 900\noom_kill 4")
    assert found.is_high()
    clock.now += 6
    assert not found.is_high()


def test_without_files_there_is_no_strain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.setattr(machine, "_roots", machine.Roots(tmp_path / "a", tmp_path / "b"))
    found = Strain()
    for _ in range(50):
        clock.now += 0.1
        assert not found.is_high()
