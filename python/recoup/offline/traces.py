"""Traces: recordings of a program that can be simulated under any policy and budget."""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any, Literal

from recoup import _C
from recoup._memory.sizes import MOST_BYTES, check_whole
from recoup._reporting.files import utf8_name
from recoup._reporting.moments import Moment
from recoup.decisions import Decision
from recoup.hints import hint_keywords
from recoup.offline.layout import Buffer, Op
from recoup.offline.lifetimes import Lifetimes
from recoup.offline.order import Order
from recoup.options import Options
from recoup.scope import budget
from recoup.stats import Stats

Status = Literal["ok", "out of budget", "too slow"]


@dataclasses.dataclass(frozen=True)
class Simulation:
    """Result of a simulated run."""

    policy: str
    """Name of the policy."""
    budget_bytes: int
    """Size of the budget."""
    status: Status
    """How the run ended: "ok", "out of budget" or "too slow" (see `max_time_ratio`)."""
    reason: str
    """Why the run is out of budget; else empty."""
    ops: int
    """Number of the program's ops that ran."""
    plain_cost_ns: int
    """Cost of these ops."""
    replay_cost_ns: int
    """Cost of the replays."""
    spill_cost_ns: int
    """Cost of the copies to and from the spill tier."""
    time_ratio: float
    """Sum of the three costs over `plain_cost_ns`: the compute overhead that papers plot."""
    stats: Stats
    """The engine's counters and gauges at the end."""
    decisions: list[Decision] = dataclasses.field(repr=False)
    """The engine's decisions in order; empty unless they were asked for."""

    def to_dict(self) -> dict[str, Any]:
        """All fields but the decisions, for JSON."""
        row = dataclasses.asdict(self)
        del row["decisions"]
        return row


@dataclasses.dataclass(frozen=True)
class TracedOp:
    """An op of a trace. `operands` and `fresh_bytes` refer to storages."""

    name: str
    """Name of the op, as "aten::add.Tensor"."""
    cost_ns: int
    """Cost of the op, in nanoseconds."""
    workspace_bytes: int
    """Bytes that its kernel held in addition to its results, at their peak."""
    repeatable: bool
    """Whether it may be replayed."""
    random: bool
    """Whether it draws random numbers."""
    failed: bool
    """Whether it raised an error; its kernel may have allocated memory before that."""
    operands: list[tuple[int, bool, bool]]
    """(storage, whether its bytes are read, whether it is written) of each distinct storage."""
    fresh_bytes: list[int]
    """Sizes of the storages that the op made."""


class Trace:
    """A recorded run. `read` loads one that `recoup.trace` or `recoup run --trace` has made."""

    def __init__(self, trace: _C.Trace) -> None:
        self._trace = trace

    @staticmethod
    def read(path: str | os.PathLike[str]) -> "Trace":
        """Reads a trace. Raises OSError, or ValueError with the offset if it is not complete."""
        return Trace(_C.Trace.read(utf8_name(path)))

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes the trace. Raises OSError, and then leaves no partial file."""
        self._trace.write(utf8_name(path))

    @property
    def op_count(self) -> int:
        """Number of the program's ops."""
        return self._trace.op_count()

    def ops(self) -> list[TracedOp]:
        """The ops in program order."""
        return [TracedOp(**row) for row in self._trace.ops()]

    def steps(self) -> int:
        """Number of marked training steps."""
        return sum(kind == "step" for kind, _, _ in self._trace.events())

    def step(self, index: int = -1) -> "Trace":
        """One marked step as a trace of its own; a negative index counts from the last step.

        Storages that exist when the step begins count as made outside, so they are never evicted.
        Raises ValueError if there is no such step.
        """
        steps = self.steps()
        if not -steps <= index < steps:
            raise ValueError(f"step {index} does not exist: the trace has {steps} marked steps")
        return Trace(self._trace.step(index % steps))

    def buffers(self) -> list[Buffer]:
        """The lifetime of every storage, counted in ops, and of every op's workspace.

        A storage lives from the op that made it, or from the next op if none made it, to the last
        op before it died, both included. In-place writes stay in their storage.
        """
        return self._lifetimes().buffers()

    def layout_ops(self) -> list[Op]:
        """The ops in terms of `buffers()`, with outputs that could be in place, for `layout.plan`.

        An op counts as a reader of a storage if it reads the storage's last content. Whether an op
        can run in place depends on its name; the trace has no strides, so an input is assumed to be
        read in memory order.
        """
        return self._lifetimes().ops()

    @hint_keywords()
    def order(self, *, traversal: str = "program", long_life: str = "dynamic") -> Order:
        """Another legal order of the ops within each step, see docs/research/order.md.

        traversal: how the order is found: "program" (as recorded), "bfs", "dfs" or "reverse-dfs".
        long_life: which ops are then moved to just before their first reader: "none", "fixed" (ops
            that read only what is alive throughout the step) or "dynamic" (ops whose inputs live
            longer than their results).

        Raises ValueError that lists the valid names for an unknown traversal or rule.
        """
        row = _C.order_ops(self._trace, traversal=traversal, long_life=long_life)
        row["ops"] = tuple(row["ops"])
        return Order(**row)

    def reordered(self, ops: Sequence[int]) -> "Trace":
        """The trace of a program that runs the ops in that order and frees storages at once.

        ops: indices into `ops()`.

        Raises ValueError that names the op if it would read another value than in this trace.
        """
        last = self.op_count - 1
        return Trace(_C.order_apply(self._trace, [check_whole(op, "an op", 0, last) for op in ops]))

    def _lifetimes(self) -> Lifetimes:
        return Lifetimes(self.ops(), self._trace.events())

    def unbudgeted_peak_bytes(self) -> int:
        """Peak bytes of the program if nothing is ever evicted."""
        return self._trace.unbudgeted_peak_bytes(_engine_options(1))

    @hint_keywords()
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
        spill: int | str | None = None,
        spill_bandwidth: tuple[float, float] | None = None,
        spill_request_ns: float | None = None,
        chain_cost: bool | None = None,
        options: Options | None = None,
    ) -> Simulation:
        """Runs the engine over the trace, on a device without memory.

        budget_bytes: the budget, at least 1.
        policy: a name of `policies(simulated=True)`.
        max_time_ratio: the run ends as "too slow" if it costs more than this multiple of the
            program's own ops. 0: no bound.
        layout: values have addresses, so that free memory can be fragmented. False: only bytes
            count, as in simulators without a pool.
        decisions: keep the engine's decisions.
        oracle: for the policy `oracle`: the exponents of cost, size and distance, and the weight of
            evicted ancestors in the cost; each from 0 to 8.
        plan_ahead: for a policy that knows steps. True: the first step already has its schedule or
            list, made from the same step in an earlier run. False: as in a live run, a step has
            none until a step like it has ended. None: True if the trace has one step; lists that
            the trace contains for this budget are used from the point where they were in force.
        noise: (seed, percent): the engine decides on costs that are distorted as on a busy machine,
            each by a factor e^x with a normal x of that deviation; the result has the costs of the
            trace. None: the engine decides on the costs of the trace.
        spill: size of a spill tier, in bytes or as text. Tensors that were made outside the scope
            are spilled too, unless they are pinned or have escaped. None: no tier.
        spill_bandwidth: GB/s at which the tier is read, and written. None: 0.8 and 0.8.
        spill_request_ns: latency of a request to the tier, in nanoseconds. None: the default.
        chain_cost: for the policy `coop`, see docs/research/pool-policies.md. None: the policy's
            default.
        options: tuning and ablations. None: `Options()`.

        Raises ValueError for invalid options. A budget that is too small is a result, not an error.
        """
        row = self._trace.simulate(
            _engine_options(
                budget_bytes,
                options,
                layout=layout,
                policy=policy,
                oracle=oracle,
                spill=spill,
                spill_bandwidth=spill_bandwidth,
                spill_request_ns=spill_request_ns,
                chain_cost=chain_cost,
            ),
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

    @hint_keywords()
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
        spill: int | str | None = None,
        spill_bandwidth: tuple[float, float] | None = None,
        spill_request_ns: float | None = None,
        chain_cost: bool | None = None,
        options: Options | None = None,
    ) -> list[Moment]:
        """The events of the run that `simulate` makes, as far as it gets."""
        rows = self._trace.timeline(
            _engine_options(
                budget_bytes,
                options,
                layout=layout,
                policy=policy,
                oracle=oracle,
                spill=spill,
                spill_bandwidth=spill_bandwidth,
                spill_request_ns=spill_request_ns,
                chain_cost=chain_cost,
            ),
            max_time_ratio=max_time_ratio,
            plan_ahead=plan_ahead,
            noise=noise,
        )
        return [Moment(*row) for row in rows]  # type: ignore[arg-type]


def check_budget(budget_bytes: int) -> None:
    """Raises ValueError or TypeError that says what is allowed if no simulation has this budget."""
    check_whole(budget_bytes, "a budget in bytes", 1, MOST_BYTES)


def _engine_options(
    budget_bytes: int,
    options: Options | None = None,
    *,
    layout: bool = True,
    policy: str = "planned",
    oracle: tuple[float, float, float, float] = (1.0, 1.0, 1.0, 1.0),
    spill: int | str | None = None,
    spill_bandwidth: tuple[float, float] | None = None,
    spill_request_ns: float | None = None,
    chain_cost: bool | None = None,
) -> _C.Options:
    check_budget(budget_bytes)
    tuning = options or Options()
    # `recoup.budget` knows only the policies of live runs, and of these those with an order.
    plain = dataclasses.replace(tuning, kinetic=None)
    made = budget("1B", spill=spill, options=plain).setup.options.as_dict()
    made |= {"policy": policy, "oracle": oracle, "chain_cost": chain_cost}
    made |= {"kinetic": tuning.kinetic, "budget_bytes": budget_bytes}
    if spill_bandwidth is not None:
        read, write = spill_bandwidth
        made |= {"spill_read_ns_per_byte": 1 / read, "spill_write_ns_per_byte": 1 / write}
    made["spill_request_ns"] = spill_request_ns
    if not layout:
        made["address_bytes"] = min(max(budget_bytes, 1 << 40) << 8, MOST_BYTES)
    return _C.Options(**made)
