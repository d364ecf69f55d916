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

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from recoup.offline.suggestions import steady_step
from recoup.offline.trace_file import (
    ADOPT,
    ALLOCATE,
    DIE,
    DISOWN,
    FROM_OUTSIDE,
    HOLD,
    IN_PASSING,
    WRITTEN,
    DeviceRecord,
    EventRecord,
    KernelRecord,
    ListOpRecord,
    NameRecord,
    OpRecord,
    Record,
    step_ends,
)

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
    """Index of the record that made it."""
    dies: int
    reads: int = 0
    """Number of ops that use it."""
    is_written: bool = False
    kind: _Kind = _Kind.GROWS
    is_decided: bool = False
    """Whether its kind is known independently of the op that made it."""


class ScaledTrace:
    """Makes traces of other batch sizes from a trace of one.

    batch: the recorded batch size.
    lengths: the length of the recorded inputs, and that of inputs in the traces that are made.
        None: they have the same length.
    Raises ValueError as `steady_step` does, and if the sizes do not show which grow with the
    square of the length.
    """

    def __init__(
        self, records: Sequence[Record], batch: int, lengths: tuple[int, int] | None = None
    ) -> None:
        self._records = records
        self._batch = batch
        self._lengths = lengths or (1, 1)
        self._storages: list[_Storage] = []
        self._first_fresh: dict[int, int] = {}  # by the index of the op's record
        self._block_of: dict[int, int] = {}  # storage by adopted block
        self._read_records()
        self._setup_end = setup_end(records)
        self._decide_what_stays()
        self._decide_gradients()
        self._decide_the_rest()
        if self._lengths[0] < self._lengths[1]:
            self._require_telling_length()

    def grows(self) -> list[bool]:
        """Whether each storage grows, in the order in which they appear."""
        return [storage.kind is _Kind.GROWS for storage in self._storages]

    # ---- deciding which storages grow ----

    def _read_records(self) -> None:
        for place, record in enumerate(self._records):
            if isinstance(record, OpRecord):
                for number, bits in record.operands:
                    self._storages[number].reads += 1
                    self._storages[number].is_written |= bool(bits & WRITTEN)
                self._first_fresh[place] = len(self._storages)
                for _, size_bytes in record.fresh:
                    self._add(size_bytes, place)
            elif isinstance(record, EventRecord):
                if record.tag == ADOPT:
                    self._block_of[record.index] = len(self._storages)
                if record.tag in (*FROM_OUTSIDE, ADOPT):
                    self._add(record.size_bytes, place)
                elif record.tag in (DIE, DISOWN):
                    self._storages[record.index].dies = place

    def _add(self, size_bytes: int, place: int) -> None:
        self._storages.append(_Storage(size_bytes, place, dies=len(self._records)))

    def _decide_what_stays(self) -> None:
        steady = steady_step(self._records)
        period = steady.last_mark - steady.first_mark
        ends = step_ends(self._records)[steady.last_mark % period :: period]
        for storage in self._storages:
            # The last step's end counts, so a storage that is alive there has passed it as well.
            passed = sum(storage.born < end < storage.dies for end in ends)
            if passed >= 2:
                _decide(storage, _Kind.WEIGHT if storage.is_written else _Kind.OTHER)
            elif storage.born < self._setup_end or (
                storage.born not in self._first_fresh and storage.size_bytes % self._batch
            ):
                _decide(storage, _Kind.OTHER)

    def _decide_gradients(self) -> None:
        """Goes backward, so that all readers of a storage are decided before it."""
        sizes_of_weights = {one.size_bytes for one in self._storages if one.kind is _Kind.WEIGHT}
        of_gradients = [0] * len(self._storages)  # reads by ops that only make gradients
        for place in reversed(self._first_fresh):
            op = self._op(place)
            for storage in self._gradients_of(op):
                _decide(storage, _Kind.WEIGHT)
            first = self._first_fresh[place]
            for number in range(first, first + len(op.fresh)):
                one = self._storages[number]
                is_dropped = one.reads == 0 and one.size_bytes in sizes_of_weights
                if is_dropped or 0 < one.reads == of_gradients[number]:
                    _decide(one, _Kind.WEIGHT)
            made = self._storages[first : first + len(op.fresh)]
            if made and all(one.kind is _Kind.WEIGHT for one in made):
                sizes = {one.size_bytes for one in made}
                if len(op.operands) == 1:  # a conversion to another dtype
                    sizes |= {size // 2 for size in sizes} | {2 * size for size in sizes}
                if all(self._storages[number].size_bytes in sizes for number, _ in op.operands):
                    for number, _ in op.operands:
                        of_gradients[number] += 1

    def _gradients_of(self, op: OpRecord) -> list[_Storage]:
        """Operands with the size of a parameter, or of its state, that the op writes."""
        written = {
            self._storages[number].size_bytes
            for number, bits in op.operands
            if bits & WRITTEN
            and not bits & IN_PASSING
            and self._storages[number].kind is _Kind.WEIGHT
        }
        operands = [self._storages[number] for number, _ in op.operands]
        return [one for one in operands if one.size_bytes in written]

    def _decide_the_rest(self) -> None:
        for place, first in self._first_fresh.items():
            op = self._op(place)
            operands = [self._storages[number] for number, _ in op.operands]
            for one in self._storages[first : first + len(op.fresh)]:
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

    def _op(self, place: int) -> OpRecord:
        op = self._records[place]
        assert isinstance(op, OpRecord)
        return op

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

    def records(self, batch: int) -> list[Record]:
        """The records for a program that runs the same ops with batches of that size."""
        return _Scaler(self, batch).records()


def _decide(storage: _Storage, kind: _Kind) -> None:
    if not storage.is_decided:
        storage.kind, storage.is_decided = kind, True


def setup_end(records: Sequence[Record]) -> int:
    """The first record in the first step that recurs in the second one; earlier storages stay."""
    ends = step_ends(records)
    first, second = (
        [(place, one.name) for place, one in enumerate(part, start) if isinstance(one, OpRecord)]
        for start, part in ((0, records[: ends[0]]), (ends[0], records[ends[0] : ends[1]]))
    )
    runs = {
        tuple(name for _, name in first[at : at + _ALIKE_OPS]): first[at][0]
        for at in reversed(range(max(0, len(first) - _ALIKE_OPS + 1)))
    }
    for at in range(max(0, len(second) - _ALIKE_OPS + 1)):
        place = runs.get(tuple(name for _, name in second[at : at + _ALIKE_OPS]))
        if place is not None:
            return place
    return 0


def _allocations(steps: tuple[int, ...]) -> list[int]:
    """The bytes of each allocation of a kernel."""
    return [step >> 1 for step in steps if not step & 1]


class _Scaler:
    """Writes one scaled trace."""

    def __init__(self, source: ScaledTrace, batch: int) -> None:
        self._source = source
        self._batch = batch
        self._kernels: list[KernelRecord] = []
        self._numbers: dict[tuple[int, ...], int] = {}  # of kernels, by their steps
        self._records: list[Record] = []
        self._steps: tuple[int, ...] = ()  # of the kernel of the last op

    def records(self) -> list[Record]:
        blocks = storages = 0
        source = self._source
        for place, record in enumerate(source._records):
            if isinstance(record, KernelRecord):
                self._kernels.append(record)
            elif isinstance(record, OpRecord):
                self._add_op(record, source._first_fresh[place])
                storages += len(record.fresh)
            elif isinstance(record, ListOpRecord):
                self._records.append(self._list_op(record))
            elif isinstance(record, NameRecord | DeviceRecord):
                self._records.append(record)
            else:
                size_bytes = record.size_bytes
                if record.tag == HOLD:
                    size_bytes = _allocations(self._steps)[record.index]
                    blocks += 1
                elif record.tag == ALLOCATE:
                    power = self._power_of_block(blocks, place, size_bytes)
                    size_bytes = self._grown(size_bytes, power)
                    blocks += 1
                elif record.tag in (*FROM_OUTSIDE, ADOPT):
                    size_bytes = self._grown(size_bytes, source._power(storages))
                    storages += 1
                self._records.append(dataclasses.replace(record, size_bytes=size_bytes))
        return self._records

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

    def _list_op(self, op: ListOpRecord) -> ListOpRecord:
        parts = []
        for workspace_bytes, operands in op.parts:
            power = self._power_of_op(storage for storage, _ in operands)
            parts.append((self._grown(workspace_bytes, power), operands))
        return ListOpRecord(op.name, tuple(parts))

    def _add_op(self, op: OpRecord, first: int) -> None:
        used = [storage for storage, _ in op.operands]
        made = range(first, first + len(op.fresh))
        power = self._power_of_op((*used, *made))
        if power == _STAYS:
            self._append(op, self._kernels[op.kernel].steps)
            return
        source = self._source
        stay = {
            source._storages[storage].size_bytes
            for storage in (*used, *made)
            if source._power(storage) == _STAYS
        }
        results = {
            allocation: source._power(storage)
            for (allocation, _), storage in zip(op.fresh, made, strict=True)
        }
        old = self._kernels[op.kernel].steps
        operands = [source._storages[storage] for storage in used]
        new = self._grown_kernel(old, results, stay, operands)
        fresh = tuple(
            (allocation, self._grown(size, results[allocation])) for allocation, size in op.fresh
        )
        more = _workspace(new, fresh) - _workspace(old, op.fresh)
        changed = dataclasses.replace(
            op,
            cost_ns=self._grown(op.cost_ns, power),
            workspace_bytes=max(0, op.workspace_bytes + more),
            fresh=fresh,
        )
        self._append(changed, new)

    def _grown_kernel(
        self,
        steps: tuple[int, ...],
        results: dict[int, _Power],
        stay: set[int],
        operands: Sequence[_Storage],
    ) -> tuple[int, ...]:
        """Scales a kernel; copies of storages that stay, such as reordered weights, stay too."""
        source = self._source
        grown = []
        allocation = 0
        for step in steps:
            if not step & 1:
                size = step >> 1
                grows = size not in stay and source.may_grow(size, operands)
                default = source._power_of_growing(size) if grows else _STAYS
                step = self._grown(size, results.get(allocation, default)) << 1
                allocation += 1
            grown.append(step)
        return tuple(grown)

    def _append(self, op: OpRecord, kernel: tuple[int, ...]) -> None:
        self._steps = kernel
        if kernel not in self._numbers:
            self._numbers[kernel] = len(self._numbers)
            self._records.append(KernelRecord(kernel))
        self._records.append(dataclasses.replace(op, kernel=self._numbers[kernel]))


def _workspace(steps: Iterable[int], fresh: Sequence[tuple[int, int]]) -> int:
    """Maximum bytes that a kernel holds in addition to its results."""
    sizes: list[int] = []
    held = most = 0
    for step in steps:
        if step & 1:
            held -= sizes[step >> 1]
        else:
            sizes.append(step >> 1)
            held += sizes[-1]
            most = max(most, held)
    return most - sum(size for _, size in fresh)
