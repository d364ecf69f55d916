"""Legal orders of a trace's ops, and their peak of live bytes.

Example::

    from recoup import Trace

    trace = Trace.read("run.rtrace")
    better = trace.order(traversal="dfs", long_life="dynamic")
    print(better.program_bound_bytes, better.bound_bytes)
    trace.reordered(better.ops).write("better.rtrace")
"""

from dataclasses import dataclass, field

from recoup.offline import _C

__all__ = ["Choice", "Order", "long_life_rules", "traversals"]


@dataclass(frozen=True)
class Order:
    """An order in which every op reads the same values as in the program. See `Trace.order`."""

    traversal: str
    """Name of the traversal."""
    long_life: str
    """Name of the long-life rule."""
    ops: tuple[int, ...] = field(repr=False)
    """Indices into `Trace.ops()`, without failed ops."""
    moves: int
    """Number of ops that the long-life rule moved."""
    bound_bytes: int
    """Maximum live bytes at one op. A storage lives from the op that makes it to the last op that
    uses it, or to the end of its step if the program holds it longer."""
    program_bound_bytes: int
    """The same for the program's own order."""


@dataclass(frozen=True)
class Choice:
    """An entry of `traversals()` or `long_life_rules()`."""

    name: str
    """Name, for `Trace.order`."""
    summary: str
    """One line of text."""


def traversals() -> list[Choice]:
    """Methods of finding an order, in the order of all tables."""
    return [Choice(*row) for row in _C.order_traversals()]


def long_life_rules() -> list[Choice]:
    """Rules that move single ops afterwards. None raises the bound of the traversal's order."""
    return [Choice(*row) for row in _C.order_rules()]
