"""The graph of a trace for planners: ops in program order, and the values between them."""

import dataclasses

from recoup.offline.traces import Trace
from recoup.scope import budget


@dataclasses.dataclass(frozen=True)
class GraphOp:
    """An op of the program that did not fail. Its position is its index in `Graph.ops`."""

    name: str
    cost_ns: int
    kernel_bytes: int
    """Maximum bytes that its kernel holds at once, results included."""
    inputs: list[int]
    """Distinct values that it reads."""
    outputs: list[int]
    """Values that it makes: in new storages first, then those that it writes in place."""


@dataclasses.dataclass(frozen=True)
class GraphValue:
    """The content of a storage between two writes."""

    producer: int | None
    """The op that made it; None: it comes from outside."""
    before: int | None
    """The value that it overwrote in the same storage; None: the storage was new."""
    born: int
    """The first op at or after its birth: the producer, if any."""
    dies: int
    """The op that overwrote it, or the first op after the program released it; the number of ops
    if it was never released."""
    readers: list[int]
    """Ops that read its bytes, ascending."""
    size_bytes: int
    """Size of its block."""
    recomputable: bool
    """Whether a replay of its producer restores it."""


@dataclasses.dataclass(frozen=True)
class TierPrice:
    """Cost of copies to and from a spill tier of unlimited capacity, as in tier.h."""

    write_ns_per_byte: float = 1.25
    read_ns_per_byte: float = 1.25
    each_ns: int = 100_000
    least_bytes: int = 4096
    """Smallest value that the tier takes."""

    def takes(self, value: GraphValue) -> bool:
        return value.size_bytes >= self.least_bytes

    def write_ns(self, value: GraphValue) -> int:
        return self.each_ns + int(self.write_ns_per_byte * value.size_bytes)

    def read_ns(self, value: GraphValue) -> int:
        return self.each_ns + int(self.read_ns_per_byte * value.size_bytes)


@dataclasses.dataclass(frozen=True)
class Graph:
    """Ops and values by index; a value that an op needs was born before it."""

    ops: list[GraphOp]
    values: list[GraphValue]
    at_exit: list[int]
    """Values that are restored when the scope ends after the last op."""


def graph_of(trace: Trace, *, small_result_bytes: int | None = None) -> Graph:
    """Returns the graph of a trace; small_result_bytes: the option of `recoup.budget`."""
    if small_result_bytes is None:
        small_result_bytes = budget("1B").setup.options.as_dict()["small_result_bytes"]
    found = trace._trace.graph(small_result_bytes=small_result_bytes)
    return Graph(
        [GraphOp(**row) for row in found["ops"]],
        [GraphValue(**row) for row in found["values"]],
        found["at_exit"],
    )
