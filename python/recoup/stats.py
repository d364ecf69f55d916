"""Counters and gauges of an engine."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stats:
    """Counters and gauges of one run.

    Counters never decrease; gauges have the current value. Names ending in `_bytes` and `_ns` carry
    their unit.
    """

    budget_bytes: int
    """Size of the budget (gauge)."""
    peak_bytes: int
    """Maximum bytes charged to the budget at one moment."""
    resident_bytes: int
    """Bytes charged now (gauge)."""
    external_bytes: int
    """Bytes charged for tensors that were made outside the scope (gauge).

    With the budget "auto" also for memory that no tensor has, beyond the reserve for it."""
    graph_bytes: int
    """Bytes that CUDA graphs captured in the budget use (gauge).

    They stay charged, and no value in them is evicted, as long as these graphs exist."""

    evictions: int
    """Values evicted by the policy or by the user."""
    evicted_bytes: int
    """Bytes of the evicted values."""
    drops: int
    """Dead values that no evicted value needs, freed at no cost."""
    replays: int
    """Ops that were run again to restore values."""
    replay_ns: int
    """Time spent in replays, in nanoseconds."""
    replay_cost_ns: int
    """Recorded cost of the replayed ops, in nanoseconds."""
    op_count: int
    """Ops that the program ran."""
    op_ns: int
    """Cost of the program's ops (see `Options.cost_model`), in nanoseconds, without the
    time spent making room."""
    workspace_bytes: int
    """Peak workspace of the last op, which its kernel held in addition to its results (gauge)."""

    search_ns: int
    """Time that policies spent searching for victims, in nanoseconds."""
    bookkeeping_ns: int
    """Time spent making room, in nanoseconds, without search, moves and replays."""
    move_ns: int
    """Time spent moving values within the pool, in nanoseconds."""
    allocator_ns: int
    """Time spent finding free blocks, in nanoseconds, estimated from one allocation in 61."""
    plans: int
    """Number of times that a policy was asked for victims."""
    candidates_visited: int
    """Candidates that policies inspected."""
    candidates_scored: int
    """Candidates whose score was computed."""

    moves: int
    """Values moved within the pool, to join free blocks or to its low end."""
    moved_bytes: int
    """Bytes of the moved values."""
    in_place_results: int
    """Results that took the memory of an operand, because they did not fit otherwise."""
    paged_allocations: int
    """Allocations of ops in paged memory, because they did not fit: `Options(page_window=...)`."""
    paged_bytes: int
    """Bytes of these allocations."""
    given_back_bytes: int
    """Bytes of the scope's memory that were given back to the system, because bytes outside it were
    charged. A later use of these pages is a page fault. 0 in a simulation."""
    freezes: int
    """Writes that changed a value with dependents."""
    frozen_values: int
    """Values that became non-recomputable through these writes."""
    old_version_copies: int
    """Old versions that were kept as private copies instead."""
    imports: int
    """Storages made outside the scope that were brought into the pool or the spill tier; their own
    memory was given back."""
    imported_bytes: int
    """Bytes of these storages."""
    spills: int
    """Values written to the spill tier."""
    spilled_bytes: int
    """Bytes written to the spill tier."""
    written_behind_bytes: int
    """Part of `spilled_bytes` that was written while ops ran."""
    clean_spills: int
    """Values evicted without a write, because the spill tier held a valid copy."""
    fetches: int
    """Values read back from the spill tier."""
    fetched_bytes: int
    """Bytes read back from the spill tier."""
    fetched_ahead_bytes: int
    """Part of `fetched_bytes` that was read while ops ran."""
    unread_copies: int
    """Copies in the spill tier that could not be read; their values were replayed."""
    spill_ns: int
    """Time that the program waited for writes to the spill tier, in nanoseconds."""
    fetch_ns: int
    """Time that the program waited for reads from the spill tier, in nanoseconds."""
    spill_cost_ns: int
    """Cost of copies to the program by their price, waiting and slower ops, in nanoseconds."""
    copy_time_ns: int
    """Time of all copies by their price, including the part hidden by ops, in nanoseconds."""
    spill_peak_bytes: int
    """Maximum bytes in the spill tier at one moment."""
    escapes: int
    """Values whose address was given to code outside recoup (NumPy, DLPack, raw pointers), and
    which therefore stay in place."""

    live_values: int
    """Records of values (gauge)."""
    live_ops: int
    """Records of ops (gauge)."""
    lineage_depth_max: int
    """Longest chain of ops on record."""
    metadata_bytes: int
    """Memory of the records (gauge)."""
    metadata_peak_bytes: int
    """Maximum memory of the records."""
    replay_depth_max: int
    """Maximum number of replays that waited for one another at once."""
    replay_chain_max: int
    """Maximum number of ops that were run again for one op of the program."""
    restarts: int
    """Replays that did not fit and were started again after everything else was evicted."""
    allocations: int
    """Blocks taken from the pool."""
    pressed_allocations: int
    """Allocations for which something was evicted."""
    pressed_free_bytes: int
    """Free bytes of the budget right after each of these allocations, summed."""
    made_room_bytes: int
    """Bytes of allocations that found no free block, so that room was made for them."""
    misfits: int
    """Allocations that found enough free bytes, but not in one block."""
    misfit_ppm: int
    """1 - largest free block / free bytes at each of these allocations, in millionths, summed."""
    foreseen_steps: int
    """Repeating steps for which evictions were planned."""
    eviction_lists: int
    """Planned steps that have an eviction list."""
    given_up_lists: int
    """Number of times that an eviction list was set aside because steps cost more with it."""
    left_steps: int
    """Steps that began with the ops for which a list was made, and then ran others."""
    listed_evictions: int
    """Part of `evictions` that an eviction list had named."""
    planned_blocks: int
    """Blocks that were allocated at the address that a plan named."""
    misplaced_blocks: int
    """Blocks that were allocated elsewhere in steps whose plan names addresses."""
    followed_steps: int
    """Steps that ran exactly the ops for which a list was made."""
    followed_expected_ns: int
    """Planned cost of the replays and moves in these steps, in nanoseconds."""
    followed_cost_ns: int
    """Actual cost of the replays and moves in these steps, in nanoseconds."""
    planning_ns: int
    """Time that the program waited for plans, in nanoseconds."""
    replay_checks: int
    """Outputs that `check_replays` hashed and compared."""

    @property
    def fragmentation(self) -> float:
        """Mean fraction of the budget that was free after an allocation that needed evictions.

        The size of the victims counts: it is above 0 even if free memory is in one block.
        """
        if self.pressed_allocations == 0:
            return 0.0
        return self.pressed_free_bytes / self.pressed_allocations / self.budget_bytes

    @property
    def scatter(self) -> float:
        """Mean of 1 - largest free block / free bytes over `misfits`; 0 if there were none."""
        return self.misfit_ppm / self.misfits / 1e6 if self.misfits else 0.0

    @classmethod
    def from_engine(cls, counts: Mapping[str, Any]) -> "Stats":
        """From the engine's counters. Raises ValueError if the keys differ from the fields."""
        fields = {field.name for field in dataclasses.fields(cls)}
        if counts.keys() != fields:
            raise ValueError(
                "the built module and recoup.Stats differ: missing "
                f"{sorted(fields - counts.keys())}, unknown {sorted(counts.keys() - fields)}"
            )
        return cls(**{name: int(count) for name, count in counts.items()})

    @property
    def added_ns(self) -> int:
        """Nanoseconds that the budget added to the time of the program's ops.

        Sum of replays, search for victims, making room, moves, and waiting for copies and plans.
        recoup's constant work at every op, with or without evictions, is not measured and not
        included.
        """
        return sum(getattr(self, name) for name in ADDED_NS)

    def to_dict(self) -> dict[str, int]:
        """Field names and values, for JSON."""
        return dataclasses.asdict(self)

    def to_groups(self) -> dict[str, dict[str, int]]:
        """The same, grouped by subject: the groups of STATS_GROUPS, in its order."""
        values = self.to_dict()
        return {
            group: {name: values[name] for name in names} for group, names in STATS_GROUPS.items()
        }


ADDED_NS = (
    "replay_ns",
    "search_ns",
    "bookkeeping_ns",
    "move_ns",
    "spill_ns",
    "fetch_ns",
    "planning_ns",
)
"""The terms of `Stats.added_ns`. The allocator's time is part of the time of ops."""

STATS_GROUPS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "memory": (
            "budget_bytes",
            "peak_bytes",
            "resident_bytes",
            "external_bytes",
            "graph_bytes",
            "workspace_bytes",
            "imports",
            "imported_bytes",
            "allocations",
            "pressed_allocations",
            "pressed_free_bytes",
            "made_room_bytes",
            "misfits",
            "misfit_ppm",
        ),
        "work": (
            "op_count",
            "evictions",
            "evicted_bytes",
            "drops",
            "replays",
            "replay_depth_max",
            "replay_chain_max",
            "restarts",
            "moves",
            "moved_bytes",
            "in_place_results",
            "paged_allocations",
            "paged_bytes",
            "given_back_bytes",
            "freezes",
            "frozen_values",
            "old_version_copies",
            "escapes",
            "plans",
            "candidates_visited",
            "candidates_scored",
            "replay_checks",
        ),
        "time": (
            "op_ns",
            "replay_ns",
            "replay_cost_ns",
            "search_ns",
            "bookkeeping_ns",
            "move_ns",
            "allocator_ns",
        ),
        "tier": (
            "spills",
            "spilled_bytes",
            "written_behind_bytes",
            "clean_spills",
            "fetches",
            "fetched_bytes",
            "fetched_ahead_bytes",
            "unread_copies",
            "spill_ns",
            "fetch_ns",
            "spill_cost_ns",
            "copy_time_ns",
            "spill_peak_bytes",
        ),
        "planning": (
            "foreseen_steps",
            "eviction_lists",
            "given_up_lists",
            "left_steps",
            "listed_evictions",
            "planned_blocks",
            "misplaced_blocks",
            "followed_steps",
            "followed_expected_ns",
            "followed_cost_ns",
            "planning_ns",
        ),
        "metadata": (
            "live_values",
            "live_ops",
            "lineage_depth_max",
            "metadata_bytes",
            "metadata_peak_bytes",
        ),
    }
)
"""Every field of `Stats`, each in one group, for files that people read."""
