"""Orders of a trace's ops, and the bytes that live then.

from recoup import Trace

trace = Trace.read("run.rtrace")
better = trace.order(traversal="dfs", long_life="dynamic")
print(better.program_bound_bytes, better.bound_bytes)
trace.reordered(better.ops).write("better.rtrace")
"""

from dataclasses import dataclass, field

from recoup import _C

__all__ = ["Choice", "Order", "long_life_rules", "traversals"]


@dataclass(frozen=True)
class Order:
    """An order in which every op sees what it saw in the program. `Trace.order` makes it."""

    traversal: str
    long_life: str
    ops: tuple[int, ...] = field(repr=False)
    """Places in `Trace.ops()`; those that failed are left out."""
    moves: int
    """That the long-life rule made."""
    bound_bytes: int
    """The most bytes that live at one op. A storage lives from the op that makes it to the last
    that uses it, and to the end of its step where the program holds it beyond."""
    program_bound_bytes: int
    """The same of the program's own order."""


@dataclass(frozen=True)
class Choice:
    """A row of `traversals()` or `long_life_rules()`."""

    name: str
    summary: str


def traversals() -> list[Choice]:
    """How an order is found, in the order in which tables list them."""
    return [Choice(*row) for row in _C.order_traversals()]


def long_life_rules() -> list[Choice]:
    """What moves single ops afterwards. No rule raises the bound of the traversal's order."""
    return [Choice(*row) for row in _C.order_rules()]
