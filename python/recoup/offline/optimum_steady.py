"""A bound for the steps of a steady training with a spill tier: each step begins as it ends.

Note [The periodic program]
The program of Note [The integer program] is that of one step, at whose start all values from
outside are resident. In a training these are what the step before left: parameters and optimizer
state. Here they cross the boundary in one way only, so what a step leaves is what it finds. For a
value v that exists at the start of the step and its successor v', which is v itself or what in-place
writes made of it:

    S[start, v] <= S[end, v'] + F[start, v]
    S[end, v'] + W[v'] >= 1                      it is resident or in the tier
    W[v] <= W[v']                                no further cost: the step before wrote the copy

A value that is never overwritten has a copy that was written long ago. Values that cross without a
successor (gradients that are dropped unread) take no memory at the start, which lowers the bound.
The engine could also evict a value at the boundary and replay it in the next step, which the program
does not consider: the bound is that of engines that do not.

Copies run beside ops, one after the other, as in Note [Async copies]: C is their time, R that of
replays, and X what copies cost the program, all over the time of the step's ops.

    X >= share * C       ops are slower while a copy runs
    C <= 1 + R + X       all copies of a step end within it

The least R + X is a lower bound: a real schedule also has to wait where the wrong ops would hide a
copy.
"""

import dataclasses
import statistics
import time

from recoup.offline.graph import Graph, GraphOp, TierPrice, graph_of
from recoup.offline.optimum_model import ENDS, Model
from recoup.offline.optimum_solver import solve
from recoup.offline.trace_file import OpRecord, records_of, step_ends, trace_of
from recoup.offline.traces import Trace, check_budget

# kProcessorShare in csrc/engine/base/tier.h.
PROCESSOR_SHARE = 0.14
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
    trace: Trace,
    budget_bytes: int,
    tier: TierPrice,
    *,
    share: float = PROCESSOR_SHARE,
    time_limit: float = 60.0,
    most_values: int = 1000,
) -> SteadyBound:
    """Returns a lower bound of a step's time ratio in a steady training with a spill tier.

    trace: one step, from `Trace.step()`; it must be like the steps before and after it.
    share: the part of a copy's time by which it delays the ops that it overlaps with, 0 to 1.
    time_limit: approximate limit in seconds, above 0.
    most_values: the number of the largest values that may be evicted; the bound treats all others
        as free.

    Raises ModuleNotFoundError without SciPy, ValueError for a number out of range.
    """
    check_budget(budget_bytes)
    if not time_limit > 0 or not 0 <= share <= 1:
        raise ValueError("a time limit must be above 0 s, and a share from 0 to 1")
    return bound_of(graph_of(trace), budget_bytes, tier, share, time_limit, most_values)


def bound_of(
    graph: Graph,
    budget_bytes: int,
    tier: TierPrice,
    share: float = PROCESSOR_SHARE,
    time_limit: float = 60.0,
    most_values: int = 1000,
) -> SteadyBound:
    """`steady_bound` of a step's graph."""
    start = time.monotonic()
    ended, successors = with_step_end(graph)
    model = SteadyModel(ended, successors, budget_bytes, most_values, tier, share)
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

    Costs of a recording differ from step to step. Steps before the first one that has as many
    records as the last one keep theirs.
    """
    records = records_of(trace)
    ends = step_ends(records)
    starts = [0, *(end + 1 for end in ends)]
    length = ends[-1] - starts[-2]
    alike = [
        start for start, end in zip(starts, ends, strict=False) if end - start == length and start
    ]
    for each in zip(*(range(start, start + length) for start in alike), strict=True):
        ops = [record for at in each if isinstance(record := records[at], OpRecord)]
        if len(ops) == len(each) and len({op.name for op in ops}) == 1:
            cost_ns = int(statistics.median(op.cost_ns for op in ops))
            for at, op in zip(each, ops, strict=True):
                records[at] = dataclasses.replace(op, cost_ns=cost_ns)
    return trace_of(records)


def with_step_end(graph: Graph) -> tuple[Graph, dict[int, int]]:
    """Adds the end of the step as an op that costs nothing, at which values are only held. Also
    returns the successor of each value that exists at the start and at the end."""
    end = len(graph.ops)
    after = {value.before: v for v, value in enumerate(graph.values) if value.before is not None}
    successors = {}
    for v, value in enumerate(graph.values):
        if value.producer is None and value.born == 0:
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
        share: float,
    ) -> None:
        self._successors = successors
        self._crossing = set(successors.values())
        self._at_start = {
            v for v, each in enumerate(graph.values) if each.producer is None and each.born == 0
        }
        self._prices: dict[int, float] = {}  # time of a copy, by column
        super().__init__(graph, budget_bytes, most_values, tier)
        for v, last in successors.items():
            if v in self.written and v != last and last in self.written:
                self.rows.add([(self.written[v], 1.0), (self.written[last], -1.0)], 0)
        self._add_costs(share)

    def _add_costs(self, share: float) -> None:
        copies = list(self._prices.items())
        cost = self._column(1.0, whole=0, upper=1 + sum(self._prices.values()))
        self.rows.add([*((c, share * price) for c, price in copies), (cost, -1.0)], 0)
        replays = [(c, -self.costs[c]) for each in self.replays for c in each.values()]
        self.rows.add([*copies, *replays, (cost, -1.0)], 1)

    # ---- hooks of Model ----

    def _copy_column(self, cost_ns: int) -> int:
        column = self._column(0.0)
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
