"""Executes proposals of `offline.optimum` step by step in a model of a run with replays, so that
the reported cost is that of a real schedule."""

import bisect
import dataclasses
from collections import Counter
from collections.abc import Iterable
from typing import Literal

from recoup.offline.graph import Graph, TierPrice


@dataclasses.dataclass(frozen=True)
class Step:
    """One step of a schedule."""

    kind: Literal["run", "drop", "write", "fetch"]
    index: int
    """Index of the op that runs, or of the value that is dropped, written to the spill tier or
    fetched from it. The first run of an op is the program's, others are replays."""
    taken: tuple[int, ...] = ()
    """Values that the op overwrites in place: their content is lost."""


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Steps that run a whole program, with their peak memory and costs."""

    steps: list[Step] = dataclasses.field(repr=False)
    peak_bytes: int
    replay_cost_ns: int
    copy_cost_ns: int = 0
    """Cost of copies to and from a spill tier."""

    @property
    def cost_ns(self) -> int:
        """Cost in addition to a run with unlimited memory."""
        return self.replay_cost_ns + self.copy_cost_ns


@dataclasses.dataclass(frozen=True)
class Wishes:
    """Values to keep and ops to replay, by moment; see Note [The integer program]."""

    moments: list[int]
    """Ops at which moments are, ascending."""
    tracked: set[int]
    """Values that the wishes cover. Other values stay while they may matter."""
    stays: list[set[int]]
    """Values to keep resident while each moment's kernel runs."""
    replays: list[set[int]]
    """Ops to replay before each moment."""
    fetches: list[set[int]] = dataclasses.field(default_factory=list)
    """Values to fetch before each moment."""
    written: set[int] = dataclasses.field(default_factory=set)
    """Values to write to the spill tier."""


def carry_out(
    graph: Graph,
    budget_bytes: int,
    wishes: Wishes,
    last_use: list[int],
    tier: TierPrice | None = None,
) -> Schedule | None:
    """Runs the program in the budget, following the wishes as far as possible.

    Replays the missing inputs of each op, in the better of two orders. When memory is short, drops
    the values with the lowest cost of restoring per byte and per op until their next use. Makes two
    runs: one keeps values that cannot be restored after the program releases them, the other drops
    them when memory is short; the cheaper run counts. With a spill tier, a value is written there
    before it is dropped if the wishes say so, if that costs less than recomputing it, or if it is
    the only way. Returns None if the program does not fit.
    """
    found = (
        _Run(graph, budget_bytes, wishes, last_use, tier, hoards=hoards).run()
        for hoards in (True, False)
    )
    return min(filter(None, found), key=lambda schedule: schedule.cost_ns, default=None)


@dataclasses.dataclass
class _State:
    resident: set[int]
    used: int
    peak: int
    cost_ns: int
    steps: list[Step]
    copy_ns: int = 0
    written: set[int] = dataclasses.field(default_factory=set)

    def copy(self) -> "_State":
        return dataclasses.replace(
            self,
            resident=set(self.resident),
            steps=list(self.steps),
            written=set(self.written),
        )


class _Run:
    def __init__(
        self,
        graph: Graph,
        budget_bytes: int,
        wishes: Wishes,
        last_use: list[int],
        tier: TierPrice | None,
        *,
        hoards: bool,
    ) -> None:
        self.graph = graph
        self.tier = tier
        self.hoards = hoards
        self.budget_bytes = budget_bytes
        self.wishes = wishes
        self.last_use = last_use
        self.state = _State(set(), 0, 0, 0, [])
        self.arrivals: dict[int, list[int]] = {}
        self.ends: dict[int, list[int]] = {}  # of lifetimes, and of last uses
        for v, value in enumerate(graph.values):
            if value.producer is None:
                self.arrivals.setdefault(value.born, []).append(v)
            self.ends.setdefault(value.dies, []).append(v)
            self.ends.setdefault(last_use[v] + 1, []).append(v)
        self.keep = self._kept(0)

    def run(self) -> Schedule | None:
        for at, op in enumerate(self.graph.ops):
            for v in self.arrivals.get(at, []):
                self._add(self.state, v)
            for v in self.ends.get(at, []):
                unwanted = v not in op.inputs and not self._held(v, at) and not self._keeps(v, at)
                if v in self.state.resident and unwanted:
                    self._drop(self.state, v, at)
            moment = bisect.bisect_left(self.wishes.moments, at)
            here = moment < len(self.wishes.moments) and self.wishes.moments[moment] == at
            if not self._replay_for(at, moment if here else None):
                return None
            if here:
                self._drop_all_but(self.wishes.stays[moment], at)
                self.keep = self._kept(moment + 1)
            if not self._run_op(self.state, at, at, Counter(op.inputs)):
                return None
            self._tidy(at)
        state = self.state
        return Schedule(state.steps, state.peak, state.cost_ns, state.copy_ns)

    # ---- values that stay ----

    def _kept(self, moment: int) -> set[int]:
        """Tracked values to keep until a moment."""
        if moment >= len(self.wishes.moments):  # with a tier, dropping them would cost something
            return set() if self.tier is None else self.wishes.tracked
        needed = (self.graph.ops[i].inputs for i in self.wishes.replays[moment])
        return self.wishes.stays[moment].union(*needed)

    def _held(self, v: int, at: int) -> bool:
        """Whether the value must stay: it cannot be restored, and the program holds it."""
        value = self.graph.values[v]
        return not value.recomputable and at < value.dies and not self._spillable(v)

    def _spillable(self, v: int) -> bool:
        return self.tier is not None and self.tier.takes(self.graph.values[v])

    def _needs_copy(self, state: _State, v: int, at: int) -> bool:
        """Whether the value must be written to the tier before it is dropped."""
        value = self.graph.values[v]
        if not self._spillable(v) or v in state.written:
            return False
        kept = not value.recomputable and at < value.dies
        return kept or (v in self.wishes.written and at <= self.last_use[v])

    def _keeps(self, v: int, at: int) -> bool:
        if v in self.wishes.tracked:
            return v in self.keep
        value = self.graph.values[v]
        return at <= self.last_use[v] or (not value.recomputable and at < value.dies)

    def _drop_all_but(self, stays: set[int], at: int) -> None:
        inputs = self.graph.ops[at].inputs
        for v in sorted(self.state.resident & self.wishes.tracked - stays):
            if v not in inputs and not self._held(v, at):
                self._drop(self.state, v, at)

    def _tidy(self, at: int) -> None:
        """Drops the values that need not be kept after an op."""
        op = self.graph.ops[at]
        for v in {*op.inputs, *op.outputs, *(self.state.resident & self.wishes.tracked)}:
            if v in self.state.resident and not self._held(v, at) and not self._keeps(v, at):
                self._drop(self.state, v, at + 1)

    # ---- replays ----

    def _replay_for(self, at: int, moment: int | None) -> bool:
        resident = self.state.resident
        targets = [v for v in self.graph.ops[at].inputs if v not in resident]
        if moment is not None:
            wished = self.wishes.replays[moment]
            for v in sorted(self.wishes.stays[moment] - resident):
                fetched = v in self.state.written and v in self.wishes.fetches[moment]
                if fetched or (
                    self.graph.values[v].recomputable and self.graph.values[v].producer in wished
                ):
                    targets.append(v)
        if not targets:
            return True
        order = self._depth_first(dict.fromkeys(targets))
        if order is None:
            return False
        start = self.state
        found = []
        for each in (sorted(order), order):
            self.state = start.copy()
            if self._replay_in(each, at, set(targets)):
                found.append(self.state)
        if found:
            self.state = min(found, key=lambda state: (state.cost_ns + state.copy_ns, state.peak))
        return bool(found)

    def _depth_first(self, targets: Iterable[int]) -> list[int] | None:
        """The ops to replay, each after those that it depends on. None: a value is lost."""
        order: dict[int, None] = {}
        stack = [(v, False) for v in targets]
        while stack:
            v, ready = stack.pop()
            value = self.graph.values[v]
            if v in self.state.resident or v in self.state.written or value.producer in order:
                continue
            if not value.recomputable or value.producer is None:
                return None
            if ready:
                order[value.producer] = None
            else:
                stack.append((v, True))
                stack += [(each, False) for each in self.graph.ops[value.producer].inputs]
        return list(order)

    def _replay_in(self, order: list[int], at: int, targets: set[int]) -> bool:
        uses = Counter(v for i in order for v in self.graph.ops[i].inputs)
        uses.update(self.graph.ops[at].inputs)
        uses.update(targets)
        for i in order:
            if not self._fetch_all(self.graph.ops[i].inputs, at, uses):
                return False
            if not self._run_op(self.state, i, at, uses):
                return False
            self.state.cost_ns += self.graph.ops[i].cost_ns
            uses.subtract(self.graph.ops[i].inputs)
            for v in (*self.graph.ops[i].inputs, *self.graph.ops[i].outputs):
                unwanted = uses[v] <= 0 and not self._held(v, at) and not self._keeps(v, at)
                if v in self.state.resident and unwanted:
                    self._drop(self.state, v, at)
        return self._fetch_all(sorted(targets), at, uses)

    def _fetch_all(self, wanted: Iterable[int], at: int, uses: Counter[int]) -> bool:
        """Fetches missing values from the tier. False: there is no room, or no copy."""
        wanted = list(wanted)
        for v in wanted:
            if v in self.state.resident:
                continue
            value = self.graph.values[v]
            if self.tier is None or v not in self.state.written:
                return False
            if not self._make_room(self.state, value.size_bytes, set(wanted), at, uses):
                return False
            self.state.steps.append(Step("fetch", v))
            self.state.copy_ns += self.tier.read_ns(value)
            self._add(self.state, v)
        return True

    # ---- running one op ----

    def _run_op(self, state: _State, i: int, at: int, uses: Counter[int]) -> bool:
        """`uses`: for each value, its uses by the ops still to run up to `at`, op `i` included."""
        op = self.graph.ops[i]
        taken = self._taken(state, i, at, uses)
        in_place = {self.graph.values[v].before: v for v in op.outputs}
        need = op.kernel_bytes + sum(
            self.graph.values[v].size_bytes
            for before, v in in_place.items()
            if before is not None and before not in taken
        )
        if not self._make_room(state, need, {*op.inputs, *taken}, at, uses):
            return False
        state.steps.append(Step("run", i, taken))
        for v in taken:
            state.resident.remove(v)
            state.used -= self.graph.values[v].size_bytes
        for v in op.outputs:
            if i == at or (self.graph.values[v].recomputable and v not in state.resident):
                self._add(state, v)
        return True

    def _taken(self, state: _State, i: int, at: int, uses: Counter[int]) -> tuple[int, ...]:
        """Values that the op overwrites. A replay works on a copy of a value that is still needed,
        and so does the program if an old content that cannot be recomputed is to stay."""
        found = []
        op = self.graph.ops[i]
        for v in op.outputs:
            before = self.graph.values[v].before
            if before is None or before not in state.resident:
                continue
            recomputable = self.graph.values[before].recomputable
            stays = self._keeps(before, at) and (self.hoards or before in self.wishes.tracked)
            if i == at:
                taken = recomputable or not stays
            else:
                copied = state.used + op.kernel_bytes + self.graph.values[before].size_bytes
                unwanted = not stays or copied > self.budget_bytes
                taken = recomputable and unwanted and uses[before] == 1 and before in op.inputs
            if taken:
                found.append(before)
        return tuple(found)

    def _make_room(
        self, state: _State, need: int, pinned: set[int], at: int, uses: Counter[int]
    ) -> bool:
        if state.used + need > self.budget_bytes:
            victims = [
                v
                for v in state.resident
                if v not in pinned and uses[v] <= 0 and not self._held(v, at)
            ]
            victims.sort(key=lambda v: (v in self.keep, self._worth(state, v, at), v))
            for v in victims:
                if state.used + need <= self.budget_bytes:
                    break
                if self._dispensable(state, v, at):
                    self._drop(state, v, at)
                elif self._spillable(v):
                    self._write(state, v)
                    self._drop(state, v, at)
            else:
                if state.used + need > self.budget_bytes:
                    return False
        state.peak = max(state.peak, state.used + need)
        return True

    def _dispensable(self, state: _State, v: int, at: int) -> bool:
        """Whether dropping `v` loses no value that the program will read, and recomputing it is
        cheaper than copying it."""
        if v in state.written:
            return True
        if self.graph.values[v].recomputable:
            price = self._copy_ns(state, v)
            cheap = price is None or self._remaking_ns(state, v) <= price
            return cheap and self._within_reach(state, v)
        if at < self.graph.values[v].dies:
            return False
        if self.hoards:
            return False
        stack, seen = [v], {v}
        while stack:
            for reader in self.graph.values[stack.pop()].readers:
                for made in self.graph.ops[reader].outputs:
                    if made in seen or made in state.resident or reader >= at:
                        continue
                    seen.add(made)
                    if self.graph.values[made].recomputable:
                        if any(later >= at for later in self.graph.values[made].readers):
                            return False
                        stack.append(made)
        return True

    def _within_reach(self, state: _State, v: int) -> bool:
        """Whether the value can be recomputed now."""
        stack, seen = [v], {v}
        while stack:
            value = self.graph.values[stack.pop()]
            if not value.recomputable or value.producer is None:
                return False
            for each in self.graph.ops[value.producer].inputs:
                if each not in state.resident | state.written and each not in seen:
                    seen.add(each)
                    stack.append(each)
        return True

    def _worth(self, state: _State, v: int, at: int) -> float:
        """Score of keeping a value: the cost of restoring it, including its missing inputs, per
        byte and per op until it, or a value computed from it, is used."""
        value = self.graph.values[v]
        if (
            self._spillable(v)
            and at > self.last_use[v]
            and (value.recomputable or at >= value.dies)
        ):
            return 0.0
        copy_ns = self._copy_ns(state, v)
        if value.producer is None or not value.recomputable:
            if copy_ns is None or at >= value.dies:
                return 0.0
            cost_ns = copy_ns
        else:
            cost_ns = self._remaking_ns(state, v)
            cost_ns = cost_ns if copy_ns is None else min(cost_ns, copy_ns)
        wait = self._next_use(state, v, at) - at + 1
        return cost_ns / (max(1, value.size_bytes) * wait)

    def _copy_ns(self, state: _State, v: int) -> int | None:
        """Cost of a copy to the tier, unless there is one, and back. None: it cannot be copied."""
        if self.tier is None or not self._spillable(v):
            return None
        value = self.graph.values[v]
        return self.tier.read_ns(value) + (v not in state.written) * self.tier.write_ns(value)

    def _remaking_ns(self, state: _State, v: int) -> int:
        producer = self.graph.values[v].producer
        assert producer is not None
        makers, stack = {producer}, [producer]
        while stack:
            for each in self.graph.ops[stack.pop()].inputs:
                maker = self.graph.values[each].producer
                there = each in state.resident or each in state.written
                if not there and maker is not None and maker not in makers:
                    makers.add(maker)
                    stack.append(maker)
        return sum(self.graph.ops[i].cost_ns for i in makers)

    def _next_use(self, state: _State, v: int, at: int) -> int:
        soonest = len(self.graph.ops)
        stack, seen = [v], {v}
        while stack:
            for reader in self.graph.values[stack.pop()].readers:
                if reader >= at:
                    soonest = min(soonest, reader)
                    break
                for made in self.graph.ops[reader].outputs:
                    if made not in seen and made not in state.resident:
                        seen.add(made)
                        stack.append(made)
        return soonest

    def _add(self, state: _State, v: int) -> None:
        state.resident.add(v)
        state.used += self.graph.values[v].size_bytes

    def _write(self, state: _State, v: int) -> None:
        assert self.tier is not None
        state.steps.append(Step("write", v))
        state.copy_ns += self.tier.write_ns(self.graph.values[v])
        state.written.add(v)

    def _drop(self, state: _State, v: int, at: int) -> None:
        """Drops a value before op `at`."""
        if self._needs_copy(state, v, at):
            self._write(state, v)
        state.steps.append(Step("drop", v))
        state.resident.remove(v)
        state.used -= self.graph.values[v].size_bytes
