"""Static layout: an address for every buffer of a run whose lifetimes are known in advance.

Example::

    from recoup import layout

    buffers = layout.read_csv("buffers.csv")
    result = layout.plan(buffers, planner="search", alignment=512)
    print(result.size_bytes, result.offsets)
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from recoup._memory.sizes import check_whole, parse_bytes
from recoup._reporting.files import utf8_name
from recoup.offline import _C

__all__ = ["Buffer", "Layout", "Op", "Planner", "plan", "planners", "read_csv"]


@dataclass(frozen=True)
class Buffer:
    """Memory of one tensor, live in the steps from `lower` to below `upper`."""

    name: str
    """Name for messages."""
    lower: int
    """First step in which it lives."""
    upper: int
    """First step after `lower` in which it does not live."""
    size_bytes: int
    """Size of the buffer."""
    stream: int = 0
    """Stream that uses the buffer. Buffers of different streams never share bytes."""


@dataclass(frozen=True)
class Op:
    """An op that runs at a step. Buffers are given by their index in the list of buffers.

    Only ops that read the input of an in-place pair are needed, but all of those: an output takes
    its input's address only if its op is the only reader and the input is dead after it.
    """

    name: str
    """Name of the op, for `disable_inplace_ops` of `plan`."""
    step: int
    """Step at which it runs: the first of its outputs, the last of the inputs that it ends."""
    reads: tuple[int, ...] = ()
    """Buffers that it reads."""
    in_place: tuple[tuple[int, int], ...] = ()
    """Pairs (output, input): the op can write this output over this input."""


@dataclass(frozen=True)
class Planner:
    """A planner as `planners()` lists it."""

    name: str
    """Value of `plan(planner=...)`."""
    summary: str
    """One line of text."""
    places: bool
    """Whether it gives addresses in addition to a size."""


@dataclass(frozen=True)
class Layout:
    """Result of a planner for a list of buffers."""

    planner: str
    """Name of the planner."""
    buffers: tuple[Buffer, ...] = field(repr=False)
    """The buffers that were planned."""
    offsets: tuple[int, ...] = field(repr=False)
    """The address of each buffer, in bytes; empty for the planner `bound`."""
    in_place: tuple[int | None, ...] = field(repr=False)
    """For each buffer, the buffer whose address it takes over; None: no buffer."""
    size_bytes: int
    """Size of the whole layout."""
    bound_bytes: int
    """Maximum live bytes at one moment: no layout takes less."""
    least_bytes: int
    """Proven lower bound of any layout: `bound_bytes`, or more if search has proved more."""
    sum_bytes: int
    """Size of a layout in which no two buffers share bytes."""
    optimal: bool
    """Whether it is proven that no layout takes less."""
    nodes: int
    """Number of decisions that search tried."""
    seconds: float = field(compare=False)
    """Planning time in seconds, without the check."""


def planners() -> list[Planner]:
    """All planners, in the order in which tables list them."""
    return [Planner(*row) for row in _C.layout_planners()]


def read_csv(path: str | os.PathLike[str]) -> list[Buffer]:
    """Reads lines `id,lower,upper,size` after a header.

    Raises ValueError with the number of the line that is wrong, OSError if there is no such file.
    """
    return [Buffer(*row) for row in _C.layout_read_csv(utf8_name(path))]


def plan(
    buffers: Sequence[Buffer],
    *,
    planner: str = "search",
    capacity: int | str | None = None,
    alignment: int | str = 1,
    time_limit: float = 10.0,
    node_limit: int = 0,
    ops: Sequence[Op] = (),
    disable_inplace_ops: Sequence[str] = (),
    check: bool = False,
) -> Layout:
    """Returns the layout that `planner` makes.

    planner: a name of `planners()`.
    capacity: size that the layout must fit into, in bytes or text such as "4GiB". `search` stops as
        soon as it fits.
    alignment: multiple of all addresses, to which sizes are rounded up; a power of two.
    time_limit: time limit of `search` in seconds; other planners have none.
    node_limit: number of decisions after which `search` stops, the same on every machine; 0: none.
    ops: ops that may run in place, see Op.
    disable_inplace_ops: names of ops that never run in place.
    check: compare every pair of buffers in the result; always done for up to 5,000 buffers.

    Raises ValueError that names the invalid buffer, op or option, or the capacity that would have
    been enough.
    """
    for buffer in buffers:
        for what in ("lower", "upper", "size_bytes"):
            value = getattr(buffer, what)
            if not -(1 << 63) <= value < 1 << 63:
                raise ValueError(
                    f"{what} of buffer {buffer.name!r} does not fit in 64 bits; got {value}"
                )
    check_whole(node_limit, "node_limit", 0, (1 << 63) - 1)
    result = _C.layout_plan(
        buffers=[(b.name, b.lower, b.upper, b.size_bytes, b.stream) for b in buffers],
        ops=[(op.name, op.step, list(op.reads), list(op.in_place)) for op in ops],
        planner=planner,
        capacity_bytes=None if capacity is None else parse_bytes(capacity, name="capacity"),
        alignment_bytes=parse_bytes(alignment, name="alignment"),
        time_limit_s=time_limit,
        node_limit=node_limit,
        disable_inplace_ops=list(disable_inplace_ops),
        check=check,
    )
    for name in ("offsets", "in_place"):
        result[name] = tuple(result[name])
    return Layout(buffers=tuple(buffers), **result)
