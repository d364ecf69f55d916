"""Traces: recordings of a program that can be simulated under any policy and budget."""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any, Literal

import torch

import recoup
from recoup._memory.sizes import MOST_BYTES, check_whole, parse_bytes
from recoup._reporting.files import utf8_name
from recoup._reporting.moments import Moment
from recoup.decisions import Decision
from recoup.engine_options import engine_options
from recoup.hints import hint_keywords
from recoup.offline import _C
from recoup.offline.layout import Buffer, Op
from recoup.offline.lifetimes import Lifetimes
from recoup.offline.order import Order
from recoup.options import SimulationOptions
from recoup.stats import Stats

Status = Literal["ok", "out of budget", "too slow"]
_CPU = torch.device("cpu")
_DEFAULTS = SimulationOptions()
_OF_OPTIONS = {
    each.name: "it is a field of recoup.SimulationOptions: write recoup.SimulationOptions("
    f"{each.name}=...)"
    for each in dataclasses.fields(SimulationOptions)
}


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
        return self._trace.unbudgeted_peak_bytes(_engine_options(1, _DEFAULTS))

    @hint_keywords(elsewhere=_OF_OPTIONS)
    def simulate(
        self,
        budget_bytes: int,
        options: SimulationOptions = _DEFAULTS,
        *,
        decisions: bool = False,
    ) -> Simulation:
        """Runs the engine over the trace, on a device without memory.

        budget_bytes: the budget, at least 1.
        decisions: keep the engine's decisions.

        Raises ValueError for invalid options. A budget that is too small is a result, not an error.
        """
        row = self._trace.simulate(
            _engine_options(budget_bytes, options), decisions=decisions, **_how(options)
        )
        stats = Stats.from_engine(row.pop("stats"))
        decided = Decision.rows(row.pop("decisions"))
        return Simulation(
            policy=options.policy, budget_bytes=budget_bytes, stats=stats, decisions=decided, **row
        )

    @hint_keywords(elsewhere=_OF_OPTIONS)
    def timeline(self, budget_bytes: int, options: SimulationOptions = _DEFAULTS) -> list[Moment]:
        """The events of the run that `simulate` makes, as far as it gets."""
        rows = self._trace.timeline(_engine_options(budget_bytes, options), **_how(options))
        return [Moment(*row) for row in rows]  # type: ignore[arg-type]


def check_budget(budget_bytes: int) -> None:
    """Raises ValueError or TypeError that says what is allowed if no simulation has this budget."""
    check_whole(budget_bytes, "a budget in bytes", 1, MOST_BYTES)


def _how(options: SimulationOptions) -> dict[str, Any]:
    return {
        "max_time_ratio": options.max_time_ratio,
        "plan_ahead": options.plan_ahead,
        "noise": options.noise,
    }


def _engine_options(budget_bytes: int, options: SimulationOptions) -> recoup._C.Options:
    check_budget(budget_bytes)
    if not isinstance(options, SimulationOptions):
        raise TypeError(
            f"options must be a recoup.SimulationOptions; got {type(options).__name__}: write "
            "recoup.SimulationOptions(...), for a recoup.Options "
            "recoup.SimulationOptions(**vars(options), policy=...)"
        )
    speeds = {}
    if options.spill_bandwidth is not None:
        read, write = options.spill_bandwidth
        speeds = {"spill_read_ns_per_byte": 1 / read, "spill_write_ns_per_byte": 1 / write}
    addresses = 0 if options.layout else min(max(budget_bytes, 1 << 40) << 8, MOST_BYTES)
    return engine_options(
        options,
        _CPU,
        budget_bytes=budget_bytes,
        policy=options.policy,
        oracle=options.oracle,
        chain_cost=options.chain_cost,
        spill_bytes=0 if options.spill is None else parse_bytes(options.spill, name="spill"),
        spill_request_ns=options.spill_request_ns,
        address_bytes=addresses,
        **speeds,
    )
