"""Scales the trace of a training to another batch size, and to longer inputs: sizes and costs.

A trace has bytes and no shapes, so it is inferred which storages grow with the batch:

1. Storages that live through a whole step keep their size (parameters, optimizer state, a data
   set), as do those that were made before the first step began.
2. A gradient keeps its size: a storage that is read by an op which writes a storage of rule 1 of
   the same size. So does a storage of such a size that is read only by ops that compute gradients
   from operands of such sizes, or that is never read.
3. A size that the batch size does not divide stays: a prime batch size such as 13 tells most. The
   exception is a size above the sum of an op's growing operands: it is a workspace and grows.
4. A result computed from parameters alone keeps its size if one of them has that size, in the same
   or another dtype. So does such a copy of another storage that keeps its size.
5. All other storages grow in proportion, and so does the cost of an op that uses them.

With longer inputs, all that grows with the batch also grows in proportion to the length, or to its
square if the square divides the size, as that of an attention matrix. What does not grow with the
batch, such as a mask, grows so if an op makes it in a step and the length divides its size.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from recoup.offline.suggestions import SteadyStep, steady_step
from recoup.offline.trace_steps import Kernel, Steps, changed, kernels_of, numbers_of
from recoup.offline.traces import Trace

_MAKES_STORAGE = ("external", "adopt")
_ALIKE_OPS = 8  # ops in a row that identify a position in the step


_Power = tuple[int, int]
"""The powers of the batch and of the length by which a size grows."""
_STAYS: _Power = (0, 0)


class _Kind(Enum):
    WEIGHT = "parameters, the optimizer's state, gradients, and what is made of these alone"
    OTHER = "what stays as large as it is, and may be read with what grows"
    GROWS = "what is as many times as large as the batch"


@dataclass
class _Storage:
    size_bytes: int
    born: int
    """Place of the event that made it."""
    dies: int
    reads: int = 0
    """Number of ops that use it."""
    is_written: bool = False
    kind: _Kind = _Kind.GROWS
    is_decided: bool = False
    """Whether its kind is known independently of the op that made it."""


class _Op(NamedTuple):
    operands: list[int]
    """Storages that it uses."""
    written: list[int]
    """Storages that it writes, and not only in passing."""
    fresh: range
    """Storages that it makes."""


class ScaledTrace:
    """Makes traces of other batch sizes from a trace of one.

    batch: the recorded batch size.
    lengths: the length of the recorded inputs, and that of inputs in the traces that are made.
        None: they have the same length.
    Raises ValueError as `steady_step` does, and if the sizes do not show which grow with the
    square of the length.
    """

    def __init__(self, trace: Trace, batch: int, lengths: tuple[int, int] | None = None) -> None:
        self._trace = trace
        self._steps = Steps(trace)
        self._numbers = numbers_of(trace)
        self._batch = batch
        self._lengths = lengths or (1, 1)
        self._storages: list[_Storage] = []
        self._ops: list[_Op] = []
        self._block_of: dict[int, int] = {}  # storage by adopted block
        self._read_events()
        steady = steady_step(self._steps)
        self._setup_end = setup_end(self._steps)
        self._decide_what_stays(steady)
        self._decide_gradients()
        self._decide_the_rest()
        if self._lengths[0] < self._lengths[1]:
            self._require_telling_length()

    def grows(self) -> list[bool]:
        """Whether each storage grows, in the order in which they appear."""
        return [storage.kind is _Kind.GROWS for storage in self._storages]

    # ---- deciding which storages grow ----

    def _read_events(self) -> None:
        left_out = iter(self._numbers["operands_left_out"])
        for place, (kind, index, size_bytes) in enumerate(self._steps.events):
            if kind == "op":
                op = self._steps.ops[index]
                written = []
                for number, _, is_written in op.operands:
                    self._storages[number].reads += 1
                    self._storages[number].is_written |= is_written
                    if not next(left_out) and is_written:
                        written.append(number)
                first = len(self._storages)
                for fresh_bytes in op.fresh_bytes:
                    self._add(fresh_bytes, place)
                operands = [number for number, _, _ in op.operands]
                self._ops.append(_Op(operands, written, range(first, len(self._storages))))
            elif kind in _MAKES_STORAGE:
                if kind == "adopt":
                    self._block_of[index] = len(self._storages)
                self._add(size_bytes, place)
            elif kind in ("die", "disown"):
                self._storages[index].dies = place

    def _add(self, size_bytes: int, place: int) -> None:
        self._storages.append(_Storage(size_bytes, place, dies=len(self._steps.events)))

    def _decide_what_stays(self, steady: SteadyStep) -> None:
        period = steady.last_mark - steady.first_mark
        ends = self._steps.ends[steady.last_mark % period :: period]
        for storage in self._storages:
            # The last step's end counts, so a storage that is alive there has passed it as well.
            passed = sum(storage.born < end < storage.dies for end in ends)
            if passed >= 2:
                _decide(storage, _Kind.WEIGHT if storage.is_written else _Kind.OTHER)
            elif storage.born < self._setup_end or (
                self._steps.events[storage.born][0] != "op" and storage.size_bytes % self._batch
            ):
                _decide(storage, _Kind.OTHER)

    def _decide_gradients(self) -> None:
        """Goes backward, so that all readers of a storage are decided before it."""
        sizes_of_weights = {one.size_bytes for one in self._storages if one.kind is _Kind.WEIGHT}
        of_gradients = [0] * len(self._storages)  # reads by ops that only make gradients
        for op in reversed(self._ops):
            for storage in self._gradients_of(op):
                _decide(storage, _Kind.WEIGHT)
            for number in op.fresh:
                one = self._storages[number]
                is_dropped = one.reads == 0 and one.size_bytes in sizes_of_weights
                if is_dropped or 0 < one.reads == of_gradients[number]:
                    _decide(one, _Kind.WEIGHT)
            made = self._those(op.fresh)
            if made and all(one.kind is _Kind.WEIGHT for one in made):
                sizes = {one.size_bytes for one in made}
                if len(op.operands) == 1:  # a conversion to another dtype
                    sizes |= {size // 2 for size in sizes} | {2 * size for size in sizes}
                if all(one.size_bytes in sizes for one in self._those(op.operands)):
                    for number in op.operands:
                        of_gradients[number] += 1

    def _those(self, numbers: Iterable[int]) -> list[_Storage]:
        return [self._storages[number] for number in numbers]

    def _gradients_of(self, op: _Op) -> list[_Storage]:
        """Operands with the size of a parameter, or of its state, that the op writes."""
        written = {one.size_bytes for one in self._those(op.written) if one.kind is _Kind.WEIGHT}
        return [one for one in self._those(op.operands) if one.size_bytes in written]

    def _decide_the_rest(self) -> None:
        for op in self._ops:
            operands = self._those(op.operands)
            for one in self._those(op.fresh):
                if not one.is_decided:
                    one.kind = self._kind_of_result(one.size_bytes, operands)

    def _kind_of_result(self, size_bytes: int, operands: Sequence[_Storage]) -> _Kind:
        if not self.may_grow(size_bytes, operands):
            return _Kind.OTHER
        kinds = {one.kind for one in operands}
        if not operands or _Kind.GROWS in kinds:
            return _Kind.GROWS
        is_alike = any(
            size_bytes * ratio == one.size_bytes or size_bytes == one.size_bytes * ratio
            for one in operands
            for ratio in (1, 2, 4)
        )
        if is_alike and kinds == {_Kind.WEIGHT}:
            return _Kind.WEIGHT
        # With several operands it may be a batch that lives on, multiplied by a parameter.
        return _Kind.OTHER if is_alike and len(operands) == 1 else _Kind.GROWS

    def may_grow(self, size_bytes: int, operands: Sequence[_Storage]) -> bool:
        """Whether a size can be proportional to the batch, in an op with these operands.

        A size above the sum of the growing operands is a workspace, which need not be divisible.
        """
        growing = [one.size_bytes for one in operands if one.kind is _Kind.GROWS]
        return size_bytes % self._batch == 0 or (growing != [] and size_bytes > sum(growing))

    def _power(self, number: int) -> _Power:
        """How a storage grows."""
        one = self._storages[number]
        if one.kind is _Kind.GROWS:
            return self._power_of_growing(one.size_bytes)
        length, longer = self._lengths
        if one.kind is _Kind.WEIGHT or one.is_decided or length == longer:
            return _STAYS
        return (0, sum(one.size_bytes % factor == 0 for factor in (length, length**2)))

    def _power_of_growing(self, size_bytes: int) -> _Power:
        """How a size grows that grows with the batch. In doubt it grows with the length, too."""
        has_square = size_bytes % (self._batch * self._lengths[0] ** 2) == 0
        return (1, 2 if has_square else 1)

    def _require_telling_length(self) -> None:
        """A length that divides most parameters also divides the width of activations."""
        length = self._lengths[0]
        kept = [one.size_bytes for one in self._storages if one.kind is _Kind.WEIGHT]
        if 2 * sum(size for size in kept if size % length == 0) <= sum(kept):
            return
        primes = (p for p in range(length - 1, 1, -1) if all(p % d for d in range(2, p)))
        raise ValueError(
            f"{length}, the length of the recorded inputs, divides the sizes of most parameters, "
            "so what grows with the length cannot be separated from what grows with its square; "
            f"record inputs of a prime length, such as {next(primes, 127)}"
        )

    # ---- the scaled trace ----

    def trace(self, batch: int) -> Trace:
        """The trace of a program that runs the same ops with batches of that size."""
        return _Scaler(self, batch).trace()


def _decide(storage: _Storage, kind: _Kind) -> None:
    if not storage.is_decided:
        storage.kind, storage.is_decided = kind, True


def setup_end(steps: Steps) -> int:
    """Place of the first op in the first step that recurs in the second one; earlier storages
    stay."""
    first, second = ([op.name for op in each] for each in steps.complete[:2])
    runs = {
        tuple(first[at : at + _ALIKE_OPS]): at
        for at in reversed(range(max(0, len(first) - _ALIKE_OPS + 1)))
    }
    for at in range(max(0, len(second) - _ALIKE_OPS + 1)):
        number = runs.get(tuple(second[at : at + _ALIKE_OPS]))
        if number is not None:
            return steps.ops_before.index(number + 1) - 1
    return 0


def _allocations(kernel: Kernel) -> list[int]:
    """The bytes of each allocation of a kernel."""
    return [step for step in kernel if step >= 0]


class _Scaler:
    """Makes one scaled trace."""

    def __init__(self, source: ScaledTrace, batch: int) -> None:
        self._source = source
        self._batch = batch
        self._old_kernels = kernels_of(source._trace)
        self._kernels: dict[Kernel, int] = {}  # the new ones and their numbers
        self._op_kernels: list[int] = []
        self._costs_ns: list[int] = []
        self._workspace_bytes: list[int] = []
        self._fresh_bytes: list[int] = []

    def trace(self) -> Trace:
        source = self._source
        blocks = storages = 0
        kernel: Kernel = ()  # of the last op
        event_bytes = []
        for place, (kind, index, size_bytes) in enumerate(source._steps.events):
            if kind == "op":
                kernel = self._add_op(index)
                storages = source._ops[index].fresh.stop
            elif kind == "allocate":
                if index > 0:  # the kernel goes on holding its allocation index - 1
                    size_bytes = _allocations(kernel)[index - 1]
                else:
                    power = self._power_of_block(blocks, place, size_bytes)
                    size_bytes = self._grown(size_bytes, power)
                blocks += 1
            elif kind in _MAKES_STORAGE:
                size_bytes = self._grown(size_bytes, source._power(storages))
                storages += 1
            event_bytes.append(size_bytes)
        return changed(
            source._trace,
            list(self._kernels),
            op_kernels=self._op_kernels,
            op_costs_ns=self._costs_ns,
            op_workspace_bytes=self._workspace_bytes,
            fresh_bytes=self._fresh_bytes,
            part_workspace_bytes=self._part_workspace_bytes(),
            event_bytes=event_bytes,
        )

    def _grown(self, number: int, power: _Power) -> int:
        recorded, length = self._source._lengths
        by_batch, by_length = power
        multiplied: int = number * self._batch**by_batch * length**by_length
        divisor: int = self._source._batch**by_batch * recorded**by_length
        return -(-multiplied // divisor)

    def _power_of_block(self, block: int, place: int, size_bytes: int) -> _Power:
        source = self._source
        if block in source._block_of:
            return source._power(source._block_of[block])
        if place >= source._setup_end and size_bytes % source._batch == 0:
            return source._power_of_growing(size_bytes)
        return _STAYS

    def _power_of_op(self, storages: Iterable[int]) -> _Power:
        """How the cost of an op grows that uses these storages: as what grows fastest."""
        powers = [_STAYS, *map(self._source._power, storages)]
        return max(batch for batch, _ in powers), max(length for _, length in powers)

    def _part_workspace_bytes(self) -> list[int]:
        """The workspaces of the parts of ops on lists."""
        numbers = self._source._numbers
        storages = iter(numbers["part_operands"])
        counts, sizes = numbers["part_operand_counts"], numbers["part_workspace_bytes"]
        return [
            self._grown(size, self._power_of_op(itertools.islice(storages, count)))
            for count, size in zip(counts, sizes, strict=True)
        ]

    def _add_op(self, index: int) -> Kernel:
        """Adds the op's numbers, and returns its new kernel."""
        source, numbers = self._source, self._source._numbers
        op, its = source._steps.ops[index], source._ops[index]
        used = [*its.operands, *its.fresh]
        power = self._power_of_op(used)
        old = new = self._old_kernels[numbers["op_kernels"][index]]
        fresh_bytes, workspace_bytes = op.fresh_bytes, op.workspace_bytes
        if power != _STAYS:
            stay = {
                source._storages[one].size_bytes for one in used if source._power(one) == _STAYS
            }
            powers = [source._power(one) for one in its.fresh]
            first = len(self._fresh_bytes)  # among the new storages of all ops
            held_by = numbers["fresh_allocations"][first : first + len(powers)]
            results = dict(zip(held_by, powers, strict=True))
            new = self._grown_kernel(old, results, stay, source._those(its.operands))
            fresh_bytes = list(map(self._grown, fresh_bytes, powers))
            more = _workspace(new, fresh_bytes) - _workspace(old, op.fresh_bytes)
            workspace_bytes = max(0, workspace_bytes + more)
        self._op_kernels.append(self._kernels.setdefault(new, len(self._kernels)))
        self._costs_ns.append(self._grown(op.cost_ns, power))
        self._workspace_bytes.append(workspace_bytes)
        self._fresh_bytes += fresh_bytes
        return new

    def _grown_kernel(
        self,
        kernel: Kernel,
        results: dict[int, _Power],
        stay: set[int],
        operands: Sequence[_Storage],
    ) -> Kernel:
        """Scales a kernel; copies of storages that stay, such as reordered weights, stay too."""
        source = self._source
        grown = []
        allocation = 0
        for step in kernel:
            if step >= 0:
                grows = step not in stay and source.may_grow(step, operands)
                default = source._power_of_growing(step) if grows else _STAYS
                step = self._grown(step, results.get(allocation, default))
                allocation += 1
            grown.append(step)
        return tuple(grown)


def _workspace(kernel: Kernel, fresh_bytes: Sequence[int]) -> int:
    """Maximum bytes that a kernel holds in addition to its results."""
    sizes: list[int] = []
    held = most = 0
    for step in kernel:
        if step < 0:
            held -= sizes[~step]
        else:
            sizes.append(step)
            held += step
            most = max(most, held)
    return most - sum(fresh_bytes)
