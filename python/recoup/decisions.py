"""What an engine decides, live or simulated."""

import dataclasses
from typing import Literal, get_args

Kind = Literal["evict", "replay", "move", "spill", "fetch"]
_KINDS: tuple[Kind, ...] = get_args(
    Kind
)  # as Decision::Kind has them, in include/recoup/simulate.h


@dataclasses.dataclass(frozen=True)
class Decision:
    """Something that the engine decided."""

    kind: Kind
    what: int
    """The id of the value, or the number of the op among all that were recorded."""
    where: int
    """The offset to which a value moved."""

    @staticmethod
    def rows(rows: list[tuple[int, int, int]]) -> list["Decision"]:
        return [Decision(_KINDS[kind], what, where) for kind, what, where in rows]
