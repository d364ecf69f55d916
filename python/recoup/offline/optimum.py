"""The least time in which a trace could run in a budget: the yardstick of every policy.

Needs SciPy, for its integer programming (HiGHS).
"""

import dataclasses
import time
from typing import Literal

from recoup.offline.graph import Graph, TierPrice, graph_of
from recoup.offline.optimum_model import Model, last_uses, with_scope_exit
from recoup.offline.optimum_solver import Solution, solve
from recoup.offline.schedule import Schedule, Wishes, carry_out
from recoup.offline.traces import Trace, check_budget

_LEAST_SECONDS = 0.05
# Below this a gap is what the solver's tolerances leave.
_PROVED = 1e-4
# Values that the first integer program may evict; each further one has twice as many.
_FIRST_VALUES = 60
# Of a column from which on it counts as chosen, where the solver did not have to make it whole.
_ROUNDINGS = (0.1, 0.3, 0.5, 0.7, 0.9)
# Shares of the budget that further programs are given, whose schedules have room for what replays
# hold for a moment.
_SHARES = (0.99, 0.97, 0.95, 0.92, 0.88)


@dataclasses.dataclass(frozen=True)
class Optimum:
    """What the least time ratio is, as far as it is known."""

    budget_bytes: int
    status: Literal["optimal", "feasible", "infeasible", "timed out"]
    """optimal: `time_ratio` is proved up to 0.01 %. feasible: it is reached, `gap` is open.
    infeasible: nothing runs in the budget. timed out: neither is known."""
    time_ratio: float | None
    """Of `schedule`, as `Simulation.time_ratio`; None without one."""
    bound: float | None
    """No engine that evicts, replays and copies can have a lower one; None when none can run."""
    seconds: float
    """That the search took."""
    values: int
    """Values that the last integer program might evict, the largest."""
    all_values: int
    """Values that could be evicted. Where these are more, the bound takes the others as free."""
    schedule: Schedule | None = dataclasses.field(repr=False)
    """A run that takes `time_ratio`."""

    @property
    def gap(self) -> float | None:
        """(time_ratio - bound) / time_ratio: by how much the optimum may still be below."""
        if self.time_ratio is None or self.bound is None:
            return None
        return max(0.0, self.time_ratio - self.bound) / self.time_ratio

    def to_dict(self) -> dict[str, object]:
        """For JSON: all but the schedule."""
        names = [field.name for field in dataclasses.fields(self) if field.name != "schedule"]
        return {name: getattr(self, name) for name in names} | {"gap": self.gap}


def optimum(
    trace: Trace,
    budget_bytes: int,
    *,
    time_limit: float = 60.0,
    small_result_bytes: int | None = None,
    tier: TierPrice | None = None,
) -> Optimum:
    """Searches a schedule of evictions and replays with the least cost of replays.

    With a `tier` values may be written there and fetched too, those that cannot be recomputed and
    those from outside among them, and what the copies cost counts as replays do.

    The engine may do what the schedule does, and the bound holds for all that it may do while bytes
    alone count (`Trace.simulate` with layout=False). Costs are the measured ones.

    time_limit: seconds, about; above 0.
    small_result_bytes: as `recoup.budget` has it.

    Raises ModuleNotFoundError without SciPy, ValueError for what is not positive.
    """
    check_budget(budget_bytes)
    if not time_limit > 0:
        raise ValueError(f"a time limit must be above 0 s; got {time_limit}")
    graph = with_scope_exit(graph_of(trace, small_result_bytes=small_result_bytes))
    return _Search(graph, budget_bytes, time_limit, tier).run()


class _InfeasibleError(Exception):
    """Proved: nothing runs in the budget."""


class _Search:
    def __init__(
        self, graph: Graph, budget_bytes: int, time_limit: float, tier: TierPrice | None
    ) -> None:
        self.graph = graph
        self.tier = tier
        self.budget_bytes = budget_bytes
        self.start = time.monotonic()
        self.end = self.start + time_limit
        self.plain_ns = max(1, sum(op.cost_ns for op in graph.ops))
        self.last_use = last_uses(graph, [value.recomputable for value in graph.values])
        self.all_values = sum(
            value.recomputable or (tier is not None and tier.takes(value)) for value in graph.values
        )
        self.values = 0
        self.bound = 1.0
        self.best: Schedule | None = None

    def run(self) -> Optimum:
        self._try(Wishes([], set(), [], []))
        try:
            self._search()
        except _InfeasibleError:
            return self._result(infeasible=True)
        return self._result()

    def _search(self) -> None:
        """With more and more values, for as long as the programs are solved in time."""
        most_values = _FIRST_VALUES
        while self._open():
            model = Model(self.graph, self.budget_bytes, most_values, self.tier)
            self.values = sum(model.evictable)
            last = self.values == self.all_values
            self._relax(model)
            if not self._open():
                return
            solved = self._solve(model, self._seconds_left() * (0.8 if last else 0.5))
            if last or not solved:
                break
            most_values *= 2
        self._search_in_less(most_values)

    def _relax(self, model: Model) -> None:
        """Without whole numbers, in a moment: a bound, and values to round."""
        found = solve(model, whole=False, seconds=self._seconds_left() * 0.3)
        self._learn(found)
        if found.columns is not None:
            for least in _ROUNDINGS:
                self._try(model.wishes(found.columns, least))

    def _solve(self, model: Model, seconds: float) -> bool:
        """Whether it was solved to the end."""
        found = solve(model, whole=True, seconds=seconds)
        if model.budget_bytes == self.budget_bytes:
            self._learn(found)
        if found.columns is not None:
            self._try(model.wishes(found.columns, 0.5))
        return found.status == "solved"

    def _learn(self, found: Solution) -> None:
        if found.status == "infeasible":
            raise _InfeasibleError
        if found.bound is not None:
            self.bound = max(self.bound, 1 + found.bound)

    def _search_in_less(self, most_values: int) -> None:
        for left, share in zip(range(len(_SHARES), 0, -1), _SHARES, strict=True):
            if not self._open() or self.end - time.monotonic() < _LEAST_SECONDS:
                return
            model = Model(self.graph, int(self.budget_bytes * share), most_values, self.tier)
            self._solve(model, self._seconds_left() / left)

    def _try(self, wishes: Wishes) -> None:
        found = carry_out(self.graph, self.budget_bytes, wishes, self.last_use, self.tier)
        if found is not None and (self.best is None or found.cost_ns < self.best.cost_ns):
            self.best = found

    def _seconds_left(self) -> float:
        return max(_LEAST_SECONDS, self.end - time.monotonic())

    def _open(self) -> bool:
        return self._result().status != "optimal"

    def _result(self, *, infeasible: bool = False) -> Optimum:
        best = self.best
        result = Optimum(
            budget_bytes=self.budget_bytes,
            status="infeasible" if infeasible else "timed out",
            time_ratio=None if best is None else 1 + best.cost_ns / self.plain_ns,
            bound=None if infeasible else self.bound,
            seconds=time.monotonic() - self.start,
            values=self.values,
            all_values=self.all_values,
            schedule=best,
        )
        if result.gap is None:
            return result
        proved = result.gap <= _PROVED
        return dataclasses.replace(result, status="optimal" if proved else "feasible")
