"""Traces: what a program did, recorded once, to be simulated under any policy and budget."""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any, Literal

from recoup import _C
from recoup._memory.sizes import MOST_BYTES, check_whole
from recoup._reporting.files import utf8_name
from recoup._reporting.moments import Moment
from recoup.decisions import Decision
from recoup.offline.layout import Buffer, Op
from recoup.offline.lifetimes import Lifetimes
from recoup.offline.order import Order
from recoup.scope import budget
from recoup.stats import Stats

Status = Literal["ok", "out of budget", "too slow"]


@dataclasses.dataclass(frozen=True)
class Simulation:
    """What a run would have done."""

    policy: str
    budget_bytes: int
    status: Status
    reason: str
    """Why it ran out of budget; empty otherwise."""
    ops: int
    """Ops of the program that ran."""
    plain_cost_ns: int
    """What they cost."""
    replay_cost_ns: int
    """What the replays cost."""
    spill_cost_ns: int
    """What the copies to and from the spill tier cost."""
    time_ratio: float
    """All over the first: the compute overhead that papers plot."""
    stats: Stats
    decisions: list[Decision] = dataclasses.field(repr=False)
    """In order; empty unless they were asked for."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON: all but the decisions."""
        row = dataclasses.asdict(self)
        del row["decisions"]
        return row


@dataclasses.dataclass(frozen=True)
class TracedOp:
    """An op of a trace."""

    name: str
    cost_ns: int
    workspace_bytes: int
    repeatable: bool
    random: bool
    failed: bool
    operands: list[tuple[int, bool, bool]]
    """(storage, whether its bytes are read, whether it is written) of each distinct storage."""
    fresh_bytes: list[int]
    """Of the storages that it made."""


class Trace:
    """A recorded run. `read` one that `recoup.trace` or `recoup run --trace` has made."""

    def __init__(self, trace: _C.Trace) -> None:
        self._trace = trace

    @staticmethod
    def read(path: str | os.PathLike[str]) -> "Trace":
        """Raises OSError, or ValueError with the offset when it is no whole trace."""
        return Trace(_C.Trace.read(utf8_name(path)))

    def write(self, path: str | os.PathLike[str]) -> None:
        """Raises OSError. No part of a file is left behind."""
        self._trace.write(utf8_name(path))

    @property
    def op_count(self) -> int:
        """Ops of the program."""
        return self._trace.op_count()

    def ops(self) -> list[TracedOp]:
        """In the order in which the program ran them."""
        return [TracedOp(**row) for row in self._trace.ops()]

    def steps(self) -> int:
        """Training steps that were marked."""
        return sum(kind == "step" for kind, _, _ in self._trace.events())

    def step(self, index: int = -1) -> "Trace":
        """One marked step as a trace of its own; negative: from the last one.

        What is there when the step begins comes from outside, so it is never evicted. Raises
        ValueError when there is no such step.
        """
        steps = self.steps()
        if not -steps <= index < steps:
            raise ValueError(f"there is no step {index} in a trace with {steps} marked steps")
        return Trace(self._trace.step(index % steps))

    def buffers(self) -> list[Buffer]:
        """The lifetime of every storage, counted in ops, and of every op's workspace.

        A storage lives from the op that made it, or the next one if none did, to the last op before
        it died, both included. In-place writes stay in their storage.
        """
        return self._lifetimes().buffers()

    def layout_ops(self) -> list[Op]:
        """The ops over `buffers()`, for `layout.plan(ops=...)`: which outputs could be in place.

        An op counts as a reader of a storage when it reads what was written there last. Which ops
        can be in place goes by their names; the trace tells no strides, so an input is taken to be
        read as it lies.
        """
        return self._lifetimes().ops()

    def order(self, *, traversal: str = "program", long_life: str = "dynamic") -> Order:
        """Another legal order of the ops, see `recoup.offline.order`.

        The program's steps stay apart. Raises ValueError, naming what there is, for an unknown
        traversal or rule.
        """
        row = _C.order_ops(self._trace, traversal=traversal, long_life=long_life)
        row["ops"] = tuple(row["ops"])
        return Order(**row)

    def reordered(self, ops: Sequence[int]) -> "Trace":
        """The trace of a program that runs the ops in that order and lets go of storages at once.

        Raises ValueError, naming the op, when it would see something else there.
        """
        last = self.op_count - 1
        return Trace(_C.order_apply(self._trace, [check_whole(op, "an op", 0, last) for op in ops]))

    def _lifetimes(self) -> Lifetimes:
        return Lifetimes(self.ops(), self._trace.events())

    def unbudgeted_peak_bytes(self) -> int:
        """The most bytes that the program holds at once when nothing is ever evicted."""
        return self._trace.unbudgeted_peak_bytes(_engine_options(1, True))

    def simulate(
        self,
        budget_bytes: int,
        *,
        policy: str = "planned",
        max_time_ratio: float = 10.0,
        layout: bool = True,
        decisions: bool = False,
        oracle: tuple[float, float, float, float] = (1.0, 1.0, 1.0, 1.0),
        plan_ahead: bool | None = None,
        noise: tuple[int, float] | None = None,
        spill_bandwidth: tuple[float, float] | None = None,
        **options: Any,
    ) -> Simulation:
        """Runs the engine over the trace, on a device with no memory.

        max_time_ratio: the run ends as "too slow" when it costs more than that many times the
            program's own ops. 0: no bound.
        layout: values lie at addresses, so that free memory may be in pieces. False: only bytes
            count, as in simulators that have no pool.
        decisions: keep what the engine decided.
        oracle: of the policy `oracle`: the exponents of cost, size and distance, and the weight of
            evicted ancestors in the cost; each from 0 to 8.
        plan_ahead: of a policy that knows steps: True: the first step has its schedule or list
            already, made of the same step in an earlier run; False: as live, a step runs without
            one until one like it has ended. None: True when the trace has one step; and where the
            trace has lists that were made in that budget, they are taken, from where they were in
            force.
        noise: (seed, percent): the engine decides on measurements that are off as on a busy
            machine, each by a factor of e^x for a normal x of that deviation; the result counts
            what the trace says. None: it measures what the trace says.
        spill_bandwidth: of a spill tier (`spill`): GB/s that are read, and written. None: 0.8,
            0.8. What was made outside the scope, and is neither pinned nor seen from outside, is
            taken over by it.
        options: as `recoup.budget` has them, and chain_cost: of the policy `coop`, see
            docs/pool-policies.md.

        Raises ValueError for options that make no sense; not fitting is a result.
        """
        row = self._trace.simulate(
            _engine_options(budget_bytes, layout, policy, oracle, spill_bandwidth, **options),
            max_time_ratio=max_time_ratio,
            decisions=decisions,
            plan_ahead=plan_ahead,
            noise=noise,
        )
        stats = Stats.from_engine(row.pop("stats"))
        decided = Decision.rows(row.pop("decisions"))
        return Simulation(
            policy=policy, budget_bytes=budget_bytes, stats=stats, decisions=decided, **row
        )

    def timeline(
        self,
        budget_bytes: int,
        *,
        policy: str = "planned",
        max_time_ratio: float = 10.0,
        layout: bool = True,
        oracle: tuple[float, float, float, float] = (1.0, 1.0, 1.0, 1.0),
        plan_ahead: bool | None = None,
        noise: tuple[int, float] | None = None,
        spill_bandwidth: tuple[float, float] | None = None,
        **options: Any,
    ) -> list[Moment]:
        """The run of `simulate`, moment by moment, as far as it goes."""
        rows = self._trace.timeline(
            _engine_options(budget_bytes, layout, policy, oracle, spill_bandwidth, **options),
            max_time_ratio=max_time_ratio,
            plan_ahead=plan_ahead,
            noise=noise,
        )
        return [Moment(*row) for row in rows]  # type: ignore[arg-type]


def check_budget(budget_bytes: int) -> None:
    """Raises ValueError, saying what is allowed, when a simulation has no such budget."""
    if budget_bytes < 1:
        raise ValueError(f"a budget must be at least 1 byte; got {budget_bytes}")
    check_whole(budget_bytes, "a budget in bytes", 1, MOST_BYTES)


def _engine_options(
    budget_bytes: int,
    layout: bool,
    policy: str = "planned",
    oracle: tuple[float, float, float, float] = (1.0, 1.0, 1.0, 1.0),
    spill_bandwidth: tuple[float, float] | None = None,
    spill_request_ns: float | None = None,
    chain_cost: bool | None = None,
    kinetic: bool | None = None,
    **changes: Any,
) -> _C.Options:
    check_budget(budget_bytes)
    made = budget("1B", **changes).setup.options.as_dict()
    made |= {"policy": policy, "oracle": oracle, "chain_cost": chain_cost, "kinetic": kinetic}
    made["budget_bytes"] = budget_bytes
    if spill_bandwidth is not None:
        read, write = spill_bandwidth
        made |= {"spill_read_ns_per_byte": 1 / read, "spill_write_ns_per_byte": 1 / write}
    made["spill_request_ns"] = spill_request_ns
    if not layout:
        made["address_bytes"] = min(max(budget_bytes, 1 << 40) << 8, MOST_BYTES)
    return _C.Options(**made)
