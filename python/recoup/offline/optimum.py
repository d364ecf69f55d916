"""The least time in which a trace can run in a budget: a reference for every policy.

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
# A smaller gap is within the solver's tolerances.
_PROVED = 1e-4
# Number of values that the first integer program may evict; each further one has twice as many.
_FIRST_VALUES = 60
# Thresholds from which on a column of the relaxed program counts as chosen.
_ROUNDINGS = (0.1, 0.3, 0.5, 0.7, 0.9)
# Fractions of the budget for further programs, whose schedules leave room for the temporary memory
# of replays.
_FRACTIONS = (0.99, 0.97, 0.95, 0.92, 0.88)


@dataclasses.dataclass(frozen=True)
class Optimum:
    """Bounds of the least time ratio in a budget."""

    budget_bytes: int
    status: Literal["optimal", "feasible", "infeasible", "timed out"]
    """optimal: `time_ratio` is proved up to 0.01 %. feasible: it is reached, but `gap` is open.
    infeasible: no run fits into the budget. timed out: neither is known."""
    time_ratio: float | None
    """Time ratio of `schedule`, defined as `Simulation.time_ratio`; None without a schedule."""
    bound: float | None
    """Lower bound for any engine that evicts, replays and copies; None if no run fits."""
    seconds: float
    """Time of the search."""
    values: int
    """Number of values that the last integer program could evict, the largest ones."""
    all_values: int
    """Number of values that can be evicted. The bound treats those beyond `values` as free."""
    schedule: Schedule | None = dataclasses.field(repr=False)
    """A run that reaches `time_ratio`."""

    @property
    def gap(self) -> float | None:
        """(time_ratio - bound) / time_ratio: how far below `time_ratio` the optimum may be."""
        if self.time_ratio is None or self.bound is None:
            return None
        return max(0.0, self.time_ratio - self.bound) / self.time_ratio

    def to_dict(self) -> dict[str, object]:
        """All fields but the schedule, for JSON."""
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
    """Searches for a schedule of evictions and replays with the least cost of replays.

    With a `tier` values can also be written to it and fetched, including those that cannot be
    recomputed and those from outside; the cost of copies counts like that of replays.

    The engine could execute the schedule, and the bound holds for everything that it could do if
    only bytes count (as with `SimulationOptions(layout=False)`). Costs are the measured ones.

    time_limit: approximate limit in seconds, above 0.
    small_result_bytes: as in `recoup.budget`.

    Raises ModuleNotFoundError without SciPy, ValueError for a number that is not positive.
    """
    check_budget(budget_bytes)
    if not time_limit > 0:
        raise ValueError(f"a time limit must be above 0 s; got {time_limit}")
    graph = with_scope_exit(graph_of(trace, small_result_bytes=small_result_bytes))
    return _Search(graph, budget_bytes, time_limit, tier).run()


class _InfeasibleError(Exception):
    """Raised when it is proved that no run fits into the budget."""


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
        """Doubles the number of values as long as the programs are solved in time."""
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
        """Solves the relaxed program, which is quick: gives a bound, and values to round."""
        found = solve(model, whole=False, seconds=self._seconds_left() * 0.3)
        self._learn(found)
        if found.columns is not None:
            for least in _ROUNDINGS:
                self._try(model.wishes(found.columns, least))

    def _solve(self, model: Model, seconds: float) -> bool:
        """Whether the program was solved to optimality."""
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
        for left, fraction in zip(range(len(_FRACTIONS), 0, -1), _FRACTIONS, strict=True):
            if not self._open() or self.end - time.monotonic() < _LEAST_SECONDS:
                return
            model = Model(self.graph, int(self.budget_bytes * fraction), most_values, self.tier)
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
