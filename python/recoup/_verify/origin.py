"""Finds the first op of a run that computed something else than the reference, from both op logs.

The search starts from a value that differs. The op that made it is looked up in the reference: if
the reference has an op of the same name, operands and arguments, the op itself gave other results.
Otherwise one of its operands may differ, so the search goes on with the ops that made those.
"""

import dataclasses
import enum
from collections import defaultdict
from collections.abc import Iterable, Sequence

from recoup._verify.op_log import LoggedOp


class Cause(enum.Enum):
    """How an op differs from the reference."""

    RESULTS = "results"
    """The same op with the same operands and arguments has other results."""
    DRAWS = "draws"
    """The same, and it draws random numbers."""
    ARGUMENTS = "arguments"
    """The reference runs the op with the same operands and other arguments."""
    OPERANDS = "operands"
    """The reference has all operands, but does not run this op on them together."""
    MEMORY = "memory"
    """The op's results depend on what uninitialized memory contains."""


@dataclasses.dataclass(frozen=True)
class Origin:
    """The op that a difference comes from."""

    op: LoggedOp
    cause: Cause
    expected: str = ""
    """The arguments in the reference, if they differ."""
    runs: int = 0
    """How often the module ran the op in this step."""
    reference_runs: int = 0
    """The same in the reference."""
    of_reference: bool = False
    """Whether the reference runs the op. Then what is said of the reference holds for the other
    run."""


def origin_of(
    differing: Iterable[str], reference: Sequence[LoggedOp], other: Sequence[LoggedOp]
) -> Origin | None:
    """The first op of `other` from which the values with the digests `differing` come.

    None: they come from something else than ops, such as input data.
    """
    known = _Reference(reference)
    makers = _makers(other)
    first: int | None = None
    seen = set(differing)
    left = list(seen)
    while left:
        at = makers.get(left.pop())
        if at is None:
            continue
        op = other[at]
        unknown = [each for each in op.operands if each not in known.values]
        if not unknown and not known.agrees(op):
            first = at if first is None else min(first, at)
        for each in unknown:
            if each not in seen:
                seen.add(each)
                left.append(each)
    return None if first is None else known.compare(other, first)


def _makers(ops: Sequence[LoggedOp]) -> dict[str, int]:
    """The index of the op that first made each value."""
    found: dict[str, int] = {}
    for index, op in enumerate(ops):
        for made in op.results:
            if made not in op.operands:
                found.setdefault(made, index)
    return found


class _Reference:
    """What the reference computed."""

    def __init__(self, ops: Sequence[LoggedOp]) -> None:
        self._ops = ops
        self._results: defaultdict[tuple[str, tuple[str, ...], str], set[tuple[str, ...]]]
        self._results = defaultdict(set)
        self._arguments: dict[tuple[str, tuple[str, ...]], str] = {}
        self.values: set[str] = set()
        for op in ops:
            self._results[op.name, op.operands, op.arguments].add(op.results)
            self._arguments[op.name, op.operands] = op.arguments
            self.values.update(op.operands, op.results)

    def agrees(self, op: LoggedOp) -> bool:
        """Whether the reference ran the op, with the same results."""
        return op.results in self._results.get((op.name, op.operands, op.arguments), ())

    def compare(self, ops: Sequence[LoggedOp], index: int) -> Origin:
        """How the op, whose operands the reference has, differs."""
        op = ops[index]
        if (op.name, op.operands, op.arguments) in self._results:
            return Origin(op, Cause.DRAWS if op.draws else Cause.RESULTS)
        expected = self._arguments.get((op.name, op.operands))
        if expected is not None:
            return Origin(op, Cause.ARGUMENTS, expected)
        return Origin(op, Cause.OPERANDS, "", _runs(ops, op), _runs(self._ops, op))


def _runs(ops: Sequence[LoggedOp], op: LoggedOp) -> int:
    return sum(one.name == op.name and one.module == op.module for one in ops)
