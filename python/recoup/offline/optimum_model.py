"""The integer program of `offline.optimum`: which values stay and which ops are replayed, and when.

Note [The integer program]
Moments are the kernels of the ops that make or read a value that may be evicted, in program order;
between two moments ops may be replayed, in any order.

    S[m, v] = 1   v has its bytes while kernel m runs, and is not made by it
    R[m, i] = 1   op i is replayed after kernel m - 1 and before kernel m

The model follows Checkmate (Jain et al., MLSys 2020, section 4), with two changes. Memory is
counted per value, not per op. And Checkmate follows memory through a stage in the order in which
the program ran the ops (its U and FREE), but an engine is not bound to that order: recomputing two
inputs one after the other takes less memory. Here the constraints are exactly those that every run
obeys, in whatever order it replays ops:

    S[m, v] <= S[m - 1, v] + R[m, producer of v]
    R[m, i] <= S[m - 1, v] + R[m, producer of v]             for each v that i reads
    sum of size * S[m, v] + bytes held by kernel m <= budget
    values kept from moment m - 1 to m + inputs and kernel of i <= budget    where R[m, i] = 1

Pointless choices have no column: values after their last possible use, and choices before memory
can be short for the first time. So the least cost is a bound on any engine that evicts and replays
at will. Values that cannot be recomputed have their bytes while the program holds them, and may be
kept after that, because values computed from them can be replayed as long as they are kept. Values
that are too small to be tracked take no memory and are always resident, which lowers the bound.

With a spill tier there are two more variables:

    W[v] = 1      v is written to the tier, at its birth: the time makes no difference to the cost
    F[m, v] = 1   v is fetched after kernel m - 1 and before kernel m

    F[m, v] <= W[v]
    S[m, v] + W[v] >= 1   where v cannot be recomputed and the program holds it

F is one more source of S and R, and values that cannot be recomputed have columns from their birth
on. A copy is written once and read any number of times, and a write to its storage does not end it.
"""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from recoup.offline.graph import Graph, GraphOp, TierPrice
from recoup.offline.schedule import Wishes

NEVER = -1
# Names of the artificial ops at the end of a graph.
ENDS = ("scope_exit", "step_end")


def last_uses(graph: Graph, makes: Sequence[bool]) -> list[int]:
    """The last op for which each value may matter: its last reader, or the last op for which a
    replay of a reader may matter. makes: for each value, whether replays may produce it."""
    last = [max(value.readers, default=NEVER) for value in graph.values]
    for op in reversed(graph.ops):
        reach = max((last[v] for v in op.outputs if makes[v]), default=NEVER)
        for v in op.inputs:
            last[v] = max(last[v], reach)
    return last


def with_scope_exit(graph: Graph) -> Graph:
    """Adds the end of the scope as an op that costs nothing and reads all live values."""
    if not graph.at_exit:
        return graph
    end = len(graph.ops)
    at_exit = set(graph.at_exit)
    values = [
        dataclasses.replace(value, readers=[*value.readers, end], dies=end + 1)
        if v in at_exit
        else value
        for v, value in enumerate(graph.values)
    ]
    leave = GraphOp("scope_exit", 0, 0, graph.at_exit, [])
    return Graph([*graph.ops, leave], values, [])


@dataclasses.dataclass(frozen=True)
class Rows:
    """Constraints `matrix @ x <= upper`, as triplets."""

    row: list[int] = dataclasses.field(default_factory=list)
    column: list[int] = dataclasses.field(default_factory=list)
    entry: list[float] = dataclasses.field(default_factory=list)
    upper: list[float] = dataclasses.field(default_factory=list)

    def add(self, terms: Iterable[tuple[int, float]], upper: float) -> None:
        """Adds a constraint; terms of one column are summed."""
        for column, entry in terms:
            self.row.append(len(self.upper))
            self.column.append(column)
            self.entry.append(entry)
        self.upper.append(upper)


class Model:
    """Variables, constraints and costs for one graph, from `with_scope_exit`, and one budget."""

    def __init__(
        self, graph: Graph, budget_bytes: int, most_values: int, tier: TierPrice | None = None
    ) -> None:
        self.graph = graph
        self.budget_bytes = budget_bytes
        self.tier = tier
        self._spillable = [tier is not None and tier.takes(v) for v in graph.values]
        candidates = [
            v.recomputable or s for v, s in zip(graph.values, self._spillable, strict=True)
        ]
        sizes = sorted(
            (v.size_bytes for v, c in zip(graph.values, candidates, strict=True) if c), reverse=True
        )
        # Of the values with the size of the last tracked one, all are tracked or none.
        least = sizes[most_values] + 1 if len(sizes) > most_values else 1
        self.evictable = [
            c and v.size_bytes >= least for v, c in zip(graph.values, candidates, strict=True)
        ]
        self._remade = [
            e and v.recomputable for v, e in zip(graph.values, self.evictable, strict=True)
        ]
        self.last_use = last_uses(graph, self._remade)
        self.moments = [
            at
            for at, op in enumerate(graph.ops)
            if any(self.evictable[v] for v in (*op.inputs, *op.outputs)) or op.name in ENDS
        ]
        self.stays: list[dict[int, int]] = []  # S, by moment: column by value
        self.replays: list[dict[int, int]] = []  # R, by moment: column by op
        self.copies: dict[int, int] = {}  # overwritten values: column of a copy that stays
        self.fetches: list[dict[int, int]] = []  # F, by moment: column by value
        self.written: dict[int, int] = {}  # W: column by value
        self.costs: list[float] = []
        self.lower: list[int] = []
        self.upper: list[float] = []
        self.whole: list[int] = []  # for each column: whether it is an integer
        self.rows = Rows()
        self._plain_ns = max(1, sum(op.cost_ns for op in graph.ops))
        self._fixed_bytes = self._fixed_by_op()
        self._overwritten = {
            before
            for op in graph.ops
            for v in op.outputs
            if (before := graph.values[v].before) is not None
            and (before in op.inputs or graph.values[before].recomputable)
        }
        self._column(0)  # SciPy refuses a program without columns
        self._add_columns(least)
        # Memory that is taken whatever the solution.
        held = [self._fixed_bytes[at] + op.kernel_bytes for at, op in enumerate(graph.ops)]
        self.rows.add([], 1 - float(max(held, default=0)) / budget_bytes)
        for moment in range(len(self.moments)):
            self._add_flow(moment)
            self._add_tier(moment)
            if moment >= self._ample:
                self._add_memory(moment)
            if moment >= max(1, self._ample):
                self._add_replay_memory(moment)

    # ---- what the program holds ----

    def _fixed_by_op(self) -> NDArray[np.int64]:
        """Bytes that cannot be restored and are resident while each op's kernel runs."""
        change = np.zeros(len(self.graph.ops) + 2, np.int64)
        for v, value in enumerate(self.graph.values):
            if self._stays_put(v):
                first = value.born if value.producer is None else value.producer + 1
                if first < value.dies:
                    change[first] += value.size_bytes
                    change[value.dies] -= value.size_bytes
        held = np.cumsum(change)
        for at, op in enumerate(self.graph.ops):
            for v in op.inputs:  # those that the op overwrites
                value = self.graph.values[v]
                held[at] += value.size_bytes if self._stays_put(v) and value.dies == at else 0
            # Blocks that get a new content that does not depend on the old one.
            held[at] += sum(self._in_place_bytes(op, v) for v in op.outputs)
        return held

    def _stays_put(self, v: int) -> bool:
        """Whether the value is resident as long as the program holds it, in every solution."""
        return not self.graph.values[v].recomputable and not self._spillable[v]

    def _in_place_bytes(self, op: GraphOp, v: int) -> int:
        before = self.graph.values[v].before
        return 0 if before is None or before in op.inputs else self.graph.values[v].size_bytes

    def _fixed_between(self, moment: int) -> int:
        """Bytes that cannot be restored and are resident from the previous moment to this one."""
        first, last = self.moments[moment - 1], self.moments[moment]
        return sum(
            value.size_bytes
            for v, value in enumerate(self.graph.values)
            if self._stays_put(v) and value.born <= first and value.dies > last
        )

    # ---- columns ----

    def _column(self, cost: float, lower: int = 0, whole: int = 1, upper: float = 1) -> int:
        self.costs.append(cost)
        self.lower.append(lower)
        self.upper.append(upper)
        self.whole.append(whole)
        return len(self.costs) - 1

    def _add_columns(self, least: int) -> None:
        graph = self.graph
        replayable = {
            i: max(self.last_use[v] for v in op.outputs if self._remade[v])
            for i, op in enumerate(graph.ops)
            if any(self._remade[v] for v in op.outputs)
        }
        tracked = [
            (v, self._first_choice(v), self._last_choice(v))
            for v, value in enumerate(graph.values)
            if self.evictable[v] or (not value.recomputable and value.size_bytes >= least)
        ]
        self._ample = self._count_ample(tracked)
        for moment, at in enumerate(self.moments):
            inputs = set(graph.ops[at].inputs)
            ample = moment < self._ample
            self.stays.append(
                {
                    v: self._column(0, v in inputs or (ample and self._stays_if_ample(v, at)))
                    for v, first, last in tracked
                    if first <= at <= last
                }
            )
            self.replays.append(
                {
                    i: self._column(graph.ops[i].cost_ns / self._plain_ns)
                    for i, last in replayable.items()
                    if i < at <= last
                    and not (
                        ample and all(not self._written_over(v, at) for v in graph.ops[i].outputs)
                    )
                }
            )
            self.fetches.append(self._fetch_columns(tracked, at, ample))
        for v, first, last in tracked:
            if first <= last and self._written_over(v, last) and not graph.values[v].recomputable:
                self.copies[v] = self._column(0)
            if self.tier is not None and self._spillable[v]:
                self.written[v] = self._write_column(v)

    def _fetch_columns(
        self, tracked: list[tuple[int, int, int]], at: int, ample: bool
    ) -> dict[int, int]:
        if self.tier is None:
            return {}
        return {
            v: self._copy_column(self.tier.read_ns(self.graph.values[v]))
            for v, first, _ in tracked
            if self._spillable[v]
            and self._first_fetch(v, first) <= at <= self.last_use[v]
            and not (ample and self._stays_if_ample(v, at))
        }

    def _copy_column(self, cost_ns: int) -> int:
        return self._column(cost_ns / self._plain_ns)

    def _write_column(self, v: int) -> int:
        assert self.tier is not None
        return self._copy_column(self.tier.write_ns(self.graph.values[v]))

    def _first_fetch(self, v: int, first: int) -> int:
        """The first op before which the value may be fetched, if it is in the tier."""
        return first + 1

    def _stays_if_ample(self, v: int, at: int) -> bool:
        """Whether the value is resident at `at` in some optimal solution if memory is ample."""
        return not self._written_over(v, at)

    def _count_ample(self, tracked: list[tuple[int, int, int]]) -> int:
        """Number of moments before which memory is never short, even with all values that may
        matter. Until then all values stay: they can still be dropped later. Only overwritten values
        may have to be replayed."""
        held = [
            int(self._fixed_bytes[at]) + op.kernel_bytes for at, op in enumerate(self.graph.ops)
        ]
        for v, first, last in tracked:
            for at in range(first - 1 if v in self._overwritten else first, last + 1):
                held[at] += self.graph.values[v].size_bytes
        short = next((at for at, size in enumerate(held) if size > self.budget_bytes), len(held))
        return sum(at < short for at in self.moments)

    def _written_over(self, v: int, at: int) -> bool:
        """Whether the value's storage has a new content after op `at`."""
        return v in self._overwritten and self.graph.values[v].dies <= at

    def _first_choice(self, v: int) -> int:
        """The first op at which the value may be resident or not."""
        value = self.graph.values[v]
        if value.recomputable or self._spillable[v]:
            return value.born if value.producer is None else value.producer + 1
        return value.dies + 1 if v in self._overwritten else value.dies

    def _last_choice(self, v: int) -> int:
        """The last such op. A non-recomputable value has its bytes or a copy while it is held."""
        source = self._spillable[v] and not self.graph.values[v].recomputable
        return max(self.last_use[v], self.graph.values[v].dies - 1) if source else self.last_use[v]

    # ---- constraints ----

    def _sources(self, moment: int, v: int) -> list[int] | None:
        """Columns of which one must be 1 for `v` to be resident before the moment. None: it is."""
        value = self.graph.values[v]
        at = self.moments[moment]
        before = self.moments[moment - 1] if moment > 0 else NEVER
        fetch = [self.fetches[moment][v]] if v in self.fetches[moment] else []
        if not value.recomputable:
            stayed = self.stays[moment - 1].get(v) if moment > 0 else None
            if v in self.copies and value.dies <= before:
                # Whether this is the first moment at which the old content can only be in a copy.
                first = value.dies == before if self._spillable[v] else stayed is None
                return [self.copies[v] if first or stayed is None else stayed, *fetch]
            return self._arrival(v, fetch) if stayed is None else [stayed, *fetch]
        if not self.evictable[v] or value.producer == before:
            return None
        assert value.producer is not None and value.producer < at
        replay = self.replays[moment].get(value.producer)
        columns = [] if replay is None else [replay]
        if value.dies != before or not self._is_before(v, before):
            columns += [self.stays[moment - 1][v]] if v in self.stays[moment - 1] else []
        return columns + fetch

    def _arrival(self, v: int, fetch: list[int]) -> list[int] | None:
        """`_sources` of a value that has just come from outside."""
        return None

    def _is_before(self, v: int, at: int) -> bool:
        return any(self.graph.values[after].before == v for after in self.graph.ops[at].outputs)

    def _add_flow(self, moment: int) -> None:
        for v, stays in self.stays[moment].items():
            sources = self._sources(moment, v)
            if sources is not None:
                self.rows.add([(stays, 1.0), *((source, -1.0) for source in sources)], 0)
        for i, replay in self.replays[moment].items():
            for v in self.graph.ops[i].inputs:
                sources = self._sources(moment, v)
                if sources is not None:
                    self.rows.add([(replay, 1.0), *((source, -1.0) for source in sources)], 0)

    def _add_tier(self, moment: int) -> None:
        at = self.moments[moment]
        for v, fetch in self.fetches[moment].items():
            self.rows.add([(fetch, 1.0), (self.written[v], -1.0)], 0)
        for v, stays in self.stays[moment].items():
            if v in self.written and self._must_exist(v, at):
                self.rows.add([(stays, -1.0), (self.written[v], -1.0)], -1)

    def _must_exist(self, v: int, at: int) -> bool:
        """Whether the value's bytes are needed at `at`, in memory or in the tier."""
        value = self.graph.values[v]
        return not value.recomputable and at < value.dies

    def _bytes(self, v: int) -> float:
        return self.graph.values[v].size_bytes / self.budget_bytes

    def _add_memory(self, moment: int) -> None:
        at = self.moments[moment]
        op = self.graph.ops[at]
        terms = [(column, self._bytes(v)) for v, column in self.stays[moment].items()]
        terms += [
            (column, self._bytes(v))
            for v, column in self.copies.items()
            if self.graph.values[v].dies == at
        ]
        room = self.budget_bytes - int(self._fixed_bytes[at]) - op.kernel_bytes
        self.rows.add(terms, room / self.budget_bytes)

    def _stretches(self, moment: int) -> dict[int, int]:
        """For each value that may stay since the previous moment: a column that is 1 if it does."""
        before = self.moments[moment - 1]
        found = {}
        for v, stays in self.stays[moment].items():
            value = self.graph.values[v]
            fetch = [(self.fetches[moment][v], -1.0)] if v in self.fetches[moment] else []
            if not value.recomputable:
                if value.dies <= before and not self._spillable[v]:
                    found[v] = stays
                elif self._spillable[v] and (value.producer is not None or value.born <= before):
                    found[v] = column = self._column(0, whole=0)
                    self.rows.add([(column, -1.0), (stays, 1.0), *fetch], 0)
                continue
            assert value.producer is not None
            replay = self.replays[moment][value.producer]
            sources = self._sources(moment, v)
            if sources is None:
                found[v] = column = self._column(0, whole=0)
                self.rows.add([(column, -1.0), (stays, 1.0), (replay, -1.0), *fetch], 0)
            elif len(sources) > 1 + len(fetch):
                found[v] = column = self._column(0, whole=0)
                terms = [(stays, 1.0), (sources[1], 1.0), (replay, -1.0), (column, -1.0), *fetch]
                self.rows.add(terms, 1)
        return found

    def _held(self, i: int) -> int:
        """Bytes that a replay of `i` holds in addition to its inputs."""
        op = self.graph.ops[i]
        return op.kernel_bytes + sum(self._in_place_bytes(op, v) for v in op.outputs)

    def _add_replay_memory(self, moment: int) -> None:
        first, last = self.moments[moment - 1], self.moments[moment]
        between = [
            int(self._fixed_bytes[at]) + self.graph.ops[at].kernel_bytes
            for at in range(first + 1, last)
        ]
        if not self.replays[moment] and not between:
            return
        stretches = self._stretches(moment)
        staying = [(column, self._bytes(v)) for v, column in stretches.items()]
        if between:
            self.rows.add(staying, 1 - max(between) / self.budget_bytes)
        room = self.budget_bytes - self._fixed_between(moment)
        for i, replay in self.replays[moment].items():
            needs = set(self.graph.ops[i].inputs)
            needed = [v for v in needs if self.evictable[v] or v in stretches]
            held = sum(self._bytes(v) for v in needed) + self._held(i) / self.budget_bytes
            rest = [(column, self._bytes(v)) for v, column in stretches.items() if v not in needs]
            self.rows.add([(replay, held), *rest], room / self.budget_bytes)

    # ---- reading a solution ----

    def wishes(self, solution: NDArray[np.float64], least: float) -> Wishes:
        """The decisions of a solution; a column of at least `least` counts as chosen."""

        def chosen(columns: dict[int, int]) -> set[int]:
            return {index for index, column in columns.items() if solution[column] >= least}

        return Wishes(
            self.moments,
            {v for stays in self.stays for v in stays},
            [chosen(stays) for stays in self.stays],
            [chosen(replays) for replays in self.replays],
            [chosen(fetches) for fetches in self.fetches],
            chosen(self.written),
        )
