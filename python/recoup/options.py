"""The options of a scope that tune the engine or switch off parts of it, and what runs record."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from recoup.hints import hint_fields

ReplayOrder = Literal["memory", "recursive"]
CostModel = Literal["measured", "bytes"]
InPlace = Literal["share", "copy"]
Planning = Literal["off", "wait", "background"]
Placement = Literal["best-fit", "two-ended"]
Profile = Literal["modules", "lines", "timeline", "decisions"]


@hint_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Tuning and ablations, for `recoup.budget`. The defaults suit training.

    `recoup.budget` checks the values and raises ValueError or TypeError with the allowed ones.
    """

    planning: Planning = "background"
    """When the policy `planned` plans the evictions of a step that repeats. "wait": at the end of
    the step, so that equal runs make equal decisions; "background": on another thread while the
    program runs; "off": never."""
    max_replay_ratio: float = 10.0
    """Upper bound of the replay cost of one op's arguments, as a multiple of the plain cost of all
    ops on record; a higher cost raises OutOfBudgetError. 0: no bound."""
    max_slowdown: float = 20.0
    """Upper bound of the cost of a run's ops and replays, as a multiple of the cost of its ops. The
    op that begins beyond it raises OutOfBudgetError. Replays of less than ten seconds in all count
    as none, and so do those before such an error or a change of the budget. It needs measured
    costs. 0: no bound. It has no effect on simulations, which have `max_time_ratio`."""
    small_filter: bool | None = None
    """Ignore candidates below 1 % of the mean size. None: as in the policy's paper."""
    sampling: bool | None = None
    """Score a random sample of about 2 sqrt(N) of N candidates. None: as in the policy's paper."""
    kinetic: bool | None = None
    """Keep the candidates ordered by score, so that the best of all candidates is found although
    only a few are inspected; nothing is sampled then. Needs a policy with `Policy.kinetic`. None:
    on for `recoup` and `planned`, unless `sampling` is on."""
    seed: int = 1033096058
    """Seed of the policy's random choices."""
    usefulness: bool = True
    """Keep dead values that an evicted value needs. False: free values that die, as DTR does."""
    reuse_operands: bool = True
    """Let a result that does not fit otherwise take the memory of an operand, whose value is
    evicted for it. Only ops for which that gives the same bits do it."""
    replay_order: ReplayOrder = "memory"
    """Order of the ops of a replay. "memory" keeps its peak memory low; "recursive" is DTR's."""
    block_size: int | str | None = None
    """Size of the pool's segments, in the units of `budget`. None: one segment."""
    page_window: int | str | None = None
    """Resident part of results that do not fit in the budget, in the units of `budget`, from
    "16MiB" to "4GiB". Such a result is in a file in `spill_dir`, and the parts that an op accesses
    are read and written while it runs. For budgets of the CPU. None: an op whose result does not
    fit fails. See docs/large-ops.md."""
    small_result_bytes: int = 1024
    """Results of at most this many bytes are non-recomputable, because their lineage would take
    more memory than they do."""
    max_depth: int = 10000
    """Maximum number of ops in a chain on record; the result of a longer chain becomes
    non-recomputable."""
    evict_after_op: bool = False
    """Evict every evictable value after every op (for tests)."""
    cost_model: CostModel = "measured"
    """Cost of an op. "measured": the median time of the last 8 measurements of ops of its kind;
    "bytes": the bytes of its inputs and outputs, which are equal in every run."""
    in_place: InPlace = "share"
    """Writes in place. "share" writes to the value's own bytes and recomputes the overwritten
    content when it is needed, as Coop does; "copy" writes to a copy, as DTR and DTE do."""
    placement: Placement = "two-ended"
    """Places of results. "two-ended" puts those of expensive ops and of cheap ops at opposite ends
    of the pool, as Coop does; "best-fit" takes the smallest block that is large enough."""
    move_ns_per_byte: float | None = None
    """Price of moving a byte within the pool, in nanoseconds; compared with the cost of evicting
    other values instead. None: measured on this machine, or 0.1 where the cost model is not
    "measured"."""


@hint_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class SimulationOptions(Options):
    """A simulated run, for `Trace.simulate` and `Trace.timeline`: that of a live run by default."""

    policy: str = "planned"
    """A name of `policies(simulated=True)`."""
    max_time_ratio: float = 10.0
    """The run ends as "too slow" if it costs more than this multiple of the program's own ops. 0:
    no bound."""
    layout: bool = True
    """Values have addresses, so that free memory can be fragmented. False: only bytes count, as in
    simulators without a pool."""
    oracle: tuple[float, float, float, float] = (1.0, 1.0, 1.0, 1.0)
    """For the policy `oracle`: the exponents of cost, size and distance, and the weight of evicted
    ancestors in the cost; each from 0 to 8."""
    chain_cost: bool | None = None
    """For the policy `coop`, see docs/research/pool-policies.md. None: the policy's default."""
    plan_ahead: bool | None = None
    """For a policy that knows steps. True: the first step already has its schedule or list, made
    from the same step in an earlier run. False: as in a live run, a step has none until a step like
    it has ended. None: True if the trace has one step; lists that the trace contains for this
    budget are used from the point where they were in force."""
    noise: tuple[int, float] | None = None
    """(seed, percent): the engine decides on costs that are distorted as on a busy machine, each by
    a factor e^x with a normal x of that deviation; the result has the costs of the trace. None: the
    engine decides on the costs of the trace."""
    spill: int | str | None = None
    """Size of a spill tier, in bytes or as text. Tensors that were made outside the scope are
    spilled too, unless they are pinned or have escaped. None: no tier."""
    spill_bandwidth: tuple[float, float] | None = None
    """GB/s at which the tier is read, and written. None: 0.8 and 0.8."""
    spill_request_ns: float | None = None
    """Latency of a request to the tier, in nanoseconds. None: 100,000."""


PRESETS: Mapping[str, Options] = MappingProxyType(
    {
        "dtr": Options(in_place="copy", placement="best-fit"),
        "dte": Options(in_place="copy", placement="best-fit"),
        "coop": Options(in_place="share", placement="two-ended"),
    }
)
"""The published systems by the name of their policy.

`recoup.budget("4GiB", policy="dtr", options=recoup.PRESETS["dtr"])` chooses victims, writes in
place and places results as DTR does. Moves, the order of replays and the rest are recoup's.
"""
