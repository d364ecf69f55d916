"""A bound for the steps of a steady training with a spill tier: each step begins as it ends.

Note [The periodic program]
The program of Note [The integer program] is that of one step, at whose start all values from
outside are resident. In a training these are what the step before left: parameters and optimizer
state. Here a step leaves what it finds. Let v be a value that exists at the start of the step, and
v' its successor: v itself, or what writes in place made of it.

    S[start, v] <= S[end, v'] + F[start, v]
    S[end, v'] + W[v'] >= 1                      it is resident or in the tier
    W[v] <= W[v']                                at no further cost: the step before wrote the copy

A value that no op writes has had a copy since an early step. A value without a successor, as a
gradient that is dropped unread, takes no memory at the start, which lowers the bound. An engine
could also evict a value at the end of a step and replay it in the next one. The program does not
consider this, so the bound is that of engines that do not.

Copies overlap with ops, one after the other, as in Note [Async copies]. D[m] is the time for which
the program waits before moment m, C the time of all copies, and R that of all replays, each over
the time of the step's ops. A copy slows the ops that it overlaps with by `fraction` of its time.
Some copies can only run between the end of kernel a and the start of kernel n: reads of values that
are used there and had no block before, and writes of values that are made there and have no block
afterwards. With the R and D of that time:

    (1 - fraction) * time of these copies <= time of the ops + R + D
    (1 - fraction) * C <= 1 + R + D                    for the whole step

The program has these rows for windows of 1, 2, 4, ... moments, also across the end of the step.
The least R + D + fraction * C is the bound.
"""

import dataclasses
import itertools
import statistics
import time

from recoup.offline.graph import Graph, GraphOp, TierPrice, graph_of
from recoup.offline.optimum_model import ENDS, NEVER, Model
from recoup.offline.optimum_solver import solve
from recoup.offline.trace_steps import Steps, changed
from recoup.offline.traces import Trace, check_budget

# kProcessorFraction in csrc/engine/base/tier.h.
PROCESSOR_FRACTION = 0.14
_LEAST_SECONDS = 0.05


@dataclasses.dataclass(frozen=True)
class SteadyBound:
    """A lower bound of the time ratio of a step in a steady training."""

    budget_bytes: int
    bound: float | None
    """Lower bound of the time ratio; None: no steady training runs in the budget."""
    proved: bool
    """Whether the integer program was solved. False: the bound is a weaker one."""
    seconds: float
    """Time of the search."""
    values: int
    """Number of values that the program could evict."""


def steady_bound(
    step: Trace | Graph,
    budget_bytes: int,
    tier: TierPrice,
    *,
    fraction: float = PROCESSOR_FRACTION,
    time_limit: float = 60.0,
    most_values: int = 1000,
) -> SteadyBound:
    """Returns a lower bound of a step's time ratio in a steady training with a spill tier.

    step: from `Trace.step()`, or its graph; it must be like the steps before and after it.
    fraction: the part of a copy's time by which it delays the ops that it overlaps with, 0 to 1.
    time_limit: approximate limit in seconds, above 0.
    most_values: the number of the largest values that may be evicted; the bound treats all others
        as free.

    Raises ModuleNotFoundError without SciPy, ValueError for a number out of range.
    """
    check_budget(budget_bytes)
    if not time_limit > 0 or not 0 <= fraction <= 1:
        raise ValueError(
            "a time limit must be above 0 s, and a fraction from 0 to 1; "
            f"got {time_limit} s and {fraction}"
        )
    start = time.monotonic()
    ended, successors = with_step_end(step if isinstance(step, Graph) else graph_of(step))
    model = SteadyModel(ended, successors, budget_bytes, most_values, tier, fraction)
    found = [solve(model, whole=False, seconds=time_limit)]
    if found[0].status != "infeasible":
        left = max(_LEAST_SECONDS, time_limit - (time.monotonic() - start))
        found.append(solve(model, whole=True, seconds=left))
    known = [each.bound for each in found if each.bound is not None]
    is_infeasible = found[-1].status == "infeasible"
    return SteadyBound(
        budget_bytes,
        None if is_infeasible else 1 + max(known, default=0.0),
        found[-1].status != "stopped",
        time.monotonic() - start,
        sum(model.evictable),
    )


def with_median_costs(trace: Trace) -> Trace:
    """The trace with the median cost of each op over the steps that end like the last one.

    Costs of a recording differ from step to step. The first step keeps its costs, as do steps with
    another number of ops than the last one. So does an op whose name differs between the steps.
    """
    steps = Steps(trace)
    costs_ns = [op.cost_ns for op in steps.ops]
    starts = [steps.ops_before[end] for end in steps.ends]
    length = len(steps.complete[-1])
    alike = [
        range(start, end) for start, end in itertools.pairwise(starts) if end - start == length
    ]
    for each in zip(*alike, strict=True):
        if len({steps.ops[op].name for op in each}) == 1:
            cost_ns = int(statistics.median(costs_ns[op] for op in each))
            for op in each:
                costs_ns[op] = cost_ns
    return changed(trace, op_costs_ns=costs_ns)


def _at_start(graph: Graph) -> list[int]:
    """The values that exist at the start of the step."""
    return [v for v, each in enumerate(graph.values) if each.producer is None and each.born == 0]


def with_step_end(graph: Graph) -> tuple[Graph, dict[int, int]]:
    """Adds the end of the step as an op that costs nothing, at which values are only held. Also
    returns the successor of each value that exists at the start and at the end."""
    end = len(graph.ops)
    after = {value.before: v for v, value in enumerate(graph.values) if value.before is not None}
    successors = {}
    for v in _at_start(graph):
        last = v
        while last in after:
            last = after[last]
        if graph.values[last].dies >= end:
            successors[v] = last
    crossing = set(successors.values())
    values = [
        dataclasses.replace(
            value,
            dies=end + 1 if value.dies >= end else value.dies,
            readers=[*value.readers, end] if v in crossing else value.readers,
        )
        for v, value in enumerate(graph.values)
    ]
    return Graph([*graph.ops, GraphOp(ENDS[1], 0, 0, [], [])], values, []), successors


class SteadyModel(Model):
    """The periodic program of one step."""

    def __init__(
        self,
        graph: Graph,
        successors: dict[int, int],
        budget_bytes: int,
        most_values: int,
        tier: TierPrice,
        fraction: float,
    ) -> None:
        self._successors = successors
        self._crossing = set(successors.values())
        self._at_start = set(_at_start(graph))
        self._prices: dict[int, float] = {}  # time of a copy, by column
        super().__init__(graph, budget_bytes, most_values, tier)
        for v, last in successors.items():
            if v in self.written and v != last and last in self.written:
                self.rows.add([(self.written[v], 1.0), (self.written[last], -1.0)], 0)
        self._add_waits(fraction)

    def _add_waits(self, fraction: float) -> None:
        """The costs of copies, and the rows for windows of moments."""
        for column, price in self._prices.items():
            self.costs[column] = fraction * price
        most = 1 + sum(self._prices.values())
        waits = [self._column(1.0, whole=0, upper=most) for _ in self.moments]
        alone = 1 - fraction
        copies = [(column, alone * price) for column, price in self._prices.items()]
        longer = [*self._replays_in(range(len(self.moments))), *((wait, -1.0) for wait in waits)]
        self.rows.add([*copies, *longer], 1)
        for last in range(len(self.moments)):
            length = 1
            while length <= len(self.moments):
                self._add_window(range(last - length + 1, last + 1), alone, waits)
                length *= 2

    def _add_window(self, window: range, alone: float, waits: list[int]) -> None:
        """The row for the time between the kernel before the window and the window's last kernel.

        window: moments; those of the step before are negative, as indices from the end of a list.
        """
        ops = self.graph.ops
        wraps = window.start <= 0  # it begins in the step before
        first, last = self.moments[window.start - 1], self.moments[window[-1]]
        between = [*ops[first + 1 :], *ops[:last]] if wraps else ops[first + 1 : last]
        time_left = sum(op.cost_ns for op in between) / self._plain_ns
        terms = [*self._replays_in(window), *((waits[moment], -1.0) for moment in window)]
        used: set[int] = set()
        for moment in reversed(window):
            if moment == -1:  # the same values, at the end of the step before
                used = {self._successors[v] for v in used if v in self._successors}
            used.update(ops[self.moments[moment]].inputs)
            terms += [
                (column, alone * self._prices[column])
                for v, column in self.fetches[moment].items()
                if v in used
            ]
        for v, stays in self.stays[window[-1]].items():
            if self._must_exist(v, last) and self._is_made_in(v, first, last, wraps=wraps):
                made = self._successors.get(v, v)
                price = alone * self._prices.get(self.written.get(made, NEVER), 0.0)
                terms.append((stays, -price))
                time_left -= price
        if any(entry > 0 for _, entry in terms) or time_left < 0:
            self.rows.add(terms, time_left)

    def _is_made_in(self, v: int, first: int, last: int, *, wraps: bool) -> bool:
        """Whether the value is made by kernel `first` or one after it, before `last`."""
        if v in self._at_start:  # the step before made it
            made = self.graph.values[self._successors[v]].producer
            return wraps and made is not None and made >= first
        made = self.graph.values[v].producer
        return made is not None and made < last and (wraps or made >= first)

    def _replays_in(self, window: range) -> list[tuple[int, float]]:
        return [(c, -self.costs[c]) for moment in window for c in self.replays[moment].values()]

    # ---- hooks of Model ----

    def _copy_column(self, cost_ns: int) -> int:
        column = self._column(0.0)  # the costs follow in _add_waits
        self._prices[column] = cost_ns / self._plain_ns
        return column

    def _write_column(self, v: int) -> int:
        return self._column(0.0) if v in self._at_start else super()._write_column(v)

    def _first_fetch(self, v: int, first: int) -> int:
        return first if v in self._at_start else first + 1

    def _stays_if_ample(self, v: int, at: int) -> bool:
        return v not in self._at_start and super()._stays_if_ample(v, at)

    def _arrival(self, v: int, fetch: list[int]) -> list[int] | None:
        last = self._successors.get(v)
        if last is None:
            return None
        return [self.stays[-1][last], *fetch] if last in self.stays[-1] else None

    def _must_exist(self, v: int, at: int) -> bool:
        if v in self._at_start and v not in self._successors:
            return False
        is_end = at == len(self.graph.ops) - 1
        return (is_end and v in self._crossing) or super()._must_exist(v, at)
