"""Decisions of an engine, live or simulated."""

import dataclasses
from typing import Literal, get_args

Kind = Literal["evict", "replay", "move", "spill", "fetch"]
_KINDS: tuple[Kind, ...] = get_args(
    Kind
)  # in the order of Decision::Kind in include/recoup/decision.h


@dataclasses.dataclass(frozen=True)
class Decision:
    """One decision of the engine."""

    kind: Kind
    """What the engine did: "evict", "replay", "move", "spill" or "fetch"."""
    what: int
    """Id of the value; of a replay, the index of the op among all recorded ops."""
    where: int
    """Offset to which a value was moved, in bytes; meaningful for "move"."""

    @staticmethod
    def rows(rows: list[tuple[int, int, int]]) -> list["Decision"]:
        """The decisions in the engine's rows, each a number of the kind, `what` and `where`."""
        return [Decision(_KINDS[kind], what, where) for kind, what, where in rows]
