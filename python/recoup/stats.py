"""What an engine has done so far."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stats:
    """Counters and gauges of one run. Counters never decrease; gauges say how things are now."""

    budget_bytes: int
    """The budget (gauge)."""
    peak_bytes: int
    """Most bytes that were ever charged to the budget at one instant."""
    resident_bytes: int
    """Bytes charged now (gauge)."""
    external_bytes: int
    """Bytes charged for tensors that were made outside the scope (gauge).

    And of the budget "auto" for what is no tensor, beyond what was reserved for it."""

    evictions: int
    """Values whose bytes were dropped because the policy or the user said so."""
    evicted_bytes: int
    """Their bytes."""
    drops: int
    """Useless dead values freed without cost."""
    replays: int
    """Ops that were run again to get a value back."""
    replay_ns: int
    """Nanoseconds spent in them."""
    replay_cost_ns: int
    """What these ops cost when they were recorded, in nanoseconds."""
    op_count: int
    """Ops that the program ran."""
    op_ns: int
    """Nanoseconds that they cost (see `recoup.budget`), waiting for room excluded."""
    workspace_bytes: int
    """The most that the last one's kernel held beside its results (gauge)."""

    search_ns: int
    """Nanoseconds in which policies looked for victims."""
    bookkeeping_ns: int
    """Nanoseconds spent making room, apart from search, moves and replays."""
    move_ns: int
    """Nanoseconds spent moving values within the pool."""
    allocator_ns: int
    """Nanoseconds spent finding free blocks, estimated from one allocation in 61."""
    plans: int
    """Times that a policy was asked for victims."""
    candidates_visited: int
    """Candidates that policies looked at."""
    candidates_scored: int
    """Candidates whose score was computed."""
    candidates_filtered: int
    """Candidates that the small-value filter skipped."""

    moves: int
    """Values that were moved within the pool, to join free blocks or to its low end."""
    moved_bytes: int
    """Their bytes."""
    freezes: int
    """Writes that found values which depend on what they overwrite."""
    frozen_values: int
    """Values that became leaves by these writes."""
    old_version_copies: int
    """Old versions that were kept as private copies instead."""
    imports: int
    """Storages made outside the scope that were brought in: their own memory was given back."""
    imported_bytes: int
    """Their bytes."""
    spills: int
    """Values that were written to the spill tier."""
    spilled_bytes: int
    """Their bytes."""
    written_behind_bytes: int
    """Of them those that were written while ops ran."""
    clean_spills: int
    """Values given up of which it had a copy: nothing was written."""
    fetches: int
    """Values that were read back from there."""
    fetched_bytes: int
    """Their bytes."""
    fetched_ahead_bytes: int
    """Of them those that were read while ops ran."""
    unread_copies: int
    """Copies that could not be read; what they held was replayed."""
    spill_ns: int
    """Waiting until they were written."""
    fetch_ns: int
    """Waiting until they were read."""
    spill_cost_ns: int
    """What both cost the program, by the price of a copy."""
    spill_peak_bytes: int
    """The most that was there."""
    escapes: int
    """Values that can be seen from outside (NumPy, DLPack, raw pointers) and so stay in place."""

    live_values: int
    """Records of values (gauge)."""
    live_ops: int
    """Records of ops (gauge)."""
    lineage_depth_max: int
    """Longest chain of ops on record."""
    metadata_bytes: int
    """Memory of the records (gauge)."""
    metadata_peak_bytes: int
    """Most memory that the records ever took."""
    replay_depth_max: int
    """Most replays that were waiting for one another at once."""
    replay_chain_max: int
    """Longest chain: most ops run again for one op of the program."""
    restarts: int
    """Replays that did not fit and began again with everything else evicted."""
    allocations: int
    """Blocks taken from the pool."""
    pressed_allocations: int
    """Those that something was evicted for."""
    pressed_free_bytes: int
    """Bytes left free right behind each of these, summed."""
    made_room_bytes: int
    """Bytes of the allocations that found no room, and then had it made: those under pressure."""
    misfits: int
    """Allocations that found the bytes free, but not in one piece."""
    misfit_ppm: int
    """1 - largest free block / free bytes at each of these, in millionths, summed."""
    foreseen_steps: int
    """Steps that repeat, for which evictions were planned."""
    eviction_lists: int
    """Of them those for which a list was better than none."""
    given_up_lists: int
    """Lists that were dearer than none, and were given up."""
    listed_evictions: int
    """Of all evictions those that a list had named."""
    followed_steps: int
    """Steps that did all that a list was made for."""
    followed_expected_ns: int
    """What their replays and moves were planned to cost, in nanoseconds."""
    followed_cost_ns: int
    """What these did cost."""
    planning_ns: int
    """Nanoseconds in which the program waited for plans."""
    verify_checks: int
    """Outputs that verify mode hashed and compared."""

    @property
    def fragmentation(self) -> float:
        """Mean share of the budget that was left free by an allocation that needed evictions.

        The victims' own granularity counts: it is above 0 without any pieces.
        """
        if self.pressed_allocations == 0:
            return 0.0
        return self.pressed_free_bytes / self.pressed_allocations / self.budget_bytes

    @property
    def scatter(self) -> float:
        """Mean of 1 - largest free block / free bytes over the allocations that did not fit so."""
        return self.misfit_ppm / self.misfits / 1e6 if self.misfits else 0.0

    @classmethod
    def from_engine(cls, counts: Mapping[str, Any]) -> "Stats":
        """The engine's counts. Raises ValueError when the keys are not the fields."""
        fields = {field.name for field in dataclasses.fields(cls)}
        if counts.keys() != fields:
            raise ValueError(
                "the built module and recoup.Stats differ: missing "
                f"{sorted(fields - counts.keys())}, unknown {sorted(counts.keys() - fields)}"
            )
        return cls(**{name: int(count) for name, count in counts.items()})

    @property
    def added_ns(self) -> int:
        """Nanoseconds that the budget added to those of the program's ops.

        Replays, looking for victims, making room, moves, waiting for copies and for plans. What
        recoup does at every op, evictions or not, is not measured and not in it.
        """
        return sum(getattr(self, name) for name in ADDED_NS)

    def to_dict(self) -> dict[str, int]:
        """Field names and values, for JSON."""
        return dataclasses.asdict(self)

    def to_groups(self) -> dict[str, dict[str, int]]:
        """The same by what they are about: the groups of STATS_GROUPS, in its order."""
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
"""What `Stats.added_ns` adds up. The allocator's time is within that of the ops."""

STATS_GROUPS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "memory": (
            "budget_bytes",
            "peak_bytes",
            "resident_bytes",
            "external_bytes",
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
            "freezes",
            "frozen_values",
            "old_version_copies",
            "escapes",
            "plans",
            "candidates_visited",
            "candidates_scored",
            "candidates_filtered",
            "verify_checks",
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
            "spill_peak_bytes",
        ),
        "planning": (
            "foreseen_steps",
            "eviction_lists",
            "given_up_lists",
            "listed_evictions",
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
"""Every field of `Stats` in one group, for files that people read."""
