"""A trace as planners see it: ops in the order of the program, and the values between them."""

import dataclasses

from recoup.offline.traces import Trace
from recoup.scope import budget


@dataclasses.dataclass(frozen=True)
class GraphOp:
    """An op of the program that did not fail. Its position is its index in `Graph.ops`."""

    name: str
    cost_ns: int
    kernel_bytes: int
    """The most that its kernel holds at once, what it makes included."""
    inputs: list[int]
    """Distinct values that it needs."""
    outputs: list[int]
    """Values that it makes: in new storages first, then those that it writes in place."""


@dataclasses.dataclass(frozen=True)
class GraphValue:
    """What a storage holds between two writes."""

    producer: int | None
    """The op that made it; None: from outside."""
    before: int | None
    """The value that it was written over, in the same storage."""
    born: int
    """The first op at or after its birth: the producer, if any."""
    dies: int
    """The op that wrote over it, or the first one after the program let go of it; the number of ops
    when it never did."""
    readers: list[int]
    """Ops that need its bytes, ascending."""
    size_bytes: int
    """Of its block."""
    recomputable: bool
    """A replay of its producer gives it back."""


@dataclasses.dataclass(frozen=True)
class TierPrice:
    """The cost of copies to and from a spill tier with room for all, as in tier.h."""

    write_ns_per_byte: float = 1.25
    read_ns_per_byte: float = 1.25
    each_ns: int = 100_000
    least_bytes: int = 4096
    """What is smaller stays."""

    def takes(self, value: GraphValue) -> bool:
        return value.size_bytes >= self.least_bytes

    def write_ns(self, value: GraphValue) -> int:
        return self.each_ns + int(self.write_ns_per_byte * value.size_bytes)

    def read_ns(self, value: GraphValue) -> int:
        return self.each_ns + int(self.read_ns_per_byte * value.size_bytes)


@dataclasses.dataclass(frozen=True)
class Graph:
    """Ops and values by index; what an op needs was born before it."""

    ops: list[GraphOp]
    values: list[GraphValue]
    at_exit: list[int]
    """Values that get their bytes back when the scope is left behind the last op."""


def graph_of(trace: Trace, *, small_result_bytes: int | None = None) -> Graph:
    """small_result_bytes: the option of `recoup.budget`."""
    if small_result_bytes is None:
        small_result_bytes = budget("1B").setup.options.as_dict()["small_result_bytes"]
    found = trace._trace.graph(small_result_bytes=small_result_bytes)
    return Graph(
        [GraphOp(**row) for row in found["ops"]],
        [GraphValue(**row) for row in found["values"]],
        found["at_exit"],
    )
