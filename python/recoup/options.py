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
    """Tuning and ablations, for `recoup.budget` and `Trace.simulate`. The defaults suit training.

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
    costs. 0: no bound. Simulations have `max_time_ratio` instead."""
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
