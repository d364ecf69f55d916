"""What an engine decides, live or simulated."""

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True)
class Decision:
    """Something that the engine decided."""

    kind: Literal["evict", "replay", "move"]
    what: int
    """The id of the value, or the number of the op among all that were recorded."""
    where: int
    """The offset to which a value moved."""

    @staticmethod
    def rows(rows: list[tuple[int, int, int]]) -> list["Decision"]:
        kinds: tuple[Literal["evict", "replay", "move"], ...] = ("evict", "replay", "move")
        return [Decision(kinds[kind], what, where) for kind, what, where in rows]
