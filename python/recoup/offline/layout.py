"""Static layout: an address for every buffer of a run whose lifetimes are known beforehand.

from recoup import layout

buffers = layout.read_csv("buffers.csv")
result = layout.plan(buffers, planner="search", alignment=512)
print(result.size_bytes, result.offsets)
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from recoup import _C
from recoup._memory.sizes import check_whole, parse_bytes
from recoup._reporting.files import utf8_name

__all__ = ["Buffer", "Layout", "Op", "Planner", "plan", "planners", "read_csv"]


@dataclass(frozen=True)
class Buffer:
    """Memory of one tensor, live in the steps from `lower` to below `upper`."""

    name: str
    lower: int
    upper: int
    size_bytes: int
    stream: int = 0
    """Buffers of different streams never share bytes, whatever their lifetimes."""


@dataclass(frozen=True)
class Op:
    """What runs at a step. Buffers are named by their place in the list of buffers.

    Only ops that read the input of an in-place pair must be given, but all of those: an output
    takes its input's place only when its op is the one reader and the input is dead after it.
    """

    name: str
    step: int
    reads: tuple[int, ...] = ()
    in_place: tuple[tuple[int, int], ...] = ()
    """Pairs (output, input): the op can write this output over this input."""


@dataclass(frozen=True)
class Planner:
    """A row of `planners()`."""

    name: str
    summary: str
    places: bool
    """Whether it gives addresses and not only a size."""


@dataclass(frozen=True)
class Layout:
    """What a planner made of a list of buffers."""

    planner: str
    buffers: tuple[Buffer, ...] = field(repr=False)
    offsets: tuple[int, ...] = field(repr=False)
    """The address of each buffer, in bytes; empty for the planner `bound`."""
    in_place: tuple[int | None, ...] = field(repr=False)
    """The buffer whose place each one took, None for nobody's."""
    size_bytes: int
    bound_bytes: int
    """The most live bytes at one moment: no layout takes less."""
    least_bytes: int
    """What is proved to be needed: the bound, or more where search has proved more."""
    sum_bytes: int
    """What it would take if no two buffers shared bytes."""
    optimal: bool
    """Whether no layout takes less."""
    nodes: int
    """Decisions that search has tried."""
    seconds: float = field(compare=False)
    """What planning took; the check is not in it."""


def planners() -> list[Planner]:
    """All planners, in the order in which tables list them."""
    return [Planner(*row) for row in _C.layout_planners()]


def read_csv(path: str | os.PathLike[str]) -> list[Buffer]:
    """Reads `id,lower,upper,size`, the header first.

    Raises ValueError with the number of the line that is wrong, OSError when there is no such file.
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
    """The layout that `planner` makes.

    planner: a name of `planners()`.
    capacity: bytes, or text such as "4GiB": what it must fit in. `search` stops as soon as it does.
    alignment: addresses are multiples of it and sizes are rounded up to it; a power of two.
    time_limit: seconds that `search` may take; the others take what they take.
    node_limit: decisions after which `search` stops, the same on every machine; 0: none.
    ops: what may be in place, see Op; disable_inplace_ops: names of ops that never are.
    check: compare every pair of buffers in the result, which up to 5,000 buffers is always done.

    Raises ValueError that names the buffer, op or option that makes no sense, or says what capacity
    would have done.
    """
    for buffer in buffers:
        for what in ("lower", "upper", "size_bytes"):
            value = getattr(buffer, what)
            if not -(1 << 63) <= value < 1 << 63:
                raise ValueError(f"{what} of buffer {buffer.name!r} needs 64 bits; got {value}")
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
