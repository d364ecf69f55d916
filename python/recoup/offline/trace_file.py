"""The records of a trace file, to cut or change them and make a trace from them.

docs/maintainers/trace-format.md describes the bytes. The engine's own reader, which checks every
rule of a trace, reads the files that are written here.
"""

import struct
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from recoup.offline.traces import Trace

_MAGIC = b"\x89rtrace\n"
_VERSION = 13
_FRAME_BYTES = 1 << 18
_NAME, _KERNEL, _OP, _PLAN, _LIST_OP, _DEVICE = 1, 2, 3, 4, 5, 6
_DEVICE_NUMBERS = 6
OUTSIDE, HOLD, IN_SEGMENT = 7, 8, 9
EXTERNAL, ALLOCATE, FREE, ADOPT, DIE = 16, 17, 18, 19, 20
DISOWN, STEP, SCOPE_EXIT, PARTS_END, TIME, SEGMENT, RULE = 26, 27, 28, 30, 32, 33, 35
FROM_OUTSIDE = (EXTERNAL, OUTSIDE, IN_SEGMENT)
"""A storage that was made outside the pool."""
_OPERAND_BITS = 5
OP_BITS = 6
"""The bits of an op's flags above this many hold the number of copies."""
READ, WRITTEN, OVERWRITTEN, IN_PASSING, OVERWRITABLE = 1, 2, 4, 8, 16
"""Bits of an operand."""


@dataclass(frozen=True)
class NameRecord:
    """A name. Names are numbered in order of appearance, as kernels are."""

    text: bytes


@dataclass(frozen=True)
class KernelRecord:
    """The allocations and frees of a kernel while it runs."""

    steps: tuple[int, ...]
    """Each: bytes << 1 of an allocation, or the number of the allocation << 1 | 1 of a free."""


@dataclass(frozen=True)
class OpRecord:
    """An op of the program."""

    name: int
    kernel: int
    flags: int
    """The bits 1 repeatable, 2 random, 4 verifiable, 8 failed; above them the number of copies."""
    cost_ns: int
    workspace_bytes: int
    record_bytes: int
    operands: tuple[tuple[int, int], ...]
    """(storage, bits) of each operand."""
    fresh: tuple[tuple[int, int], ...]
    """(allocation of the kernel, bytes) of each storage that the op made."""


@dataclass(frozen=True)
class ListOpRecord:
    """The beginning of an op on lists."""

    name: int
    parts: tuple[tuple[int, tuple[tuple[int, int], ...]], ...]
    """(workspace bytes, operands) of each part; an operand is (storage, 1 if it is written)."""


@dataclass(frozen=True)
class DeviceRecord:
    """How the device of the run allocates memory."""

    numbers: tuple[int, ...]


@dataclass(frozen=True)
class EventRecord:
    """Any other record, by its tag."""

    tag: int
    index: int = 0
    """Index of the storage, block, name or segment; of the kernel's allocation for `HOLD`."""
    size_bytes: int = 0
    """Size in bytes; for `RULE` its number."""


Record = NameRecord | KernelRecord | OpRecord | ListOpRecord | DeviceRecord | EventRecord


def records_of(trace: Trace) -> list[Record]:
    """The records of the trace in order, without plans, which belong to a run in one budget."""
    with tempfile.TemporaryDirectory(prefix="recoup-") as folder:
        path = Path(folder) / "trace"
        trace.write(path)
        return list(_Reader(path.read_bytes()).records())


def trace_of(records: Sequence[Record]) -> Trace:
    """Makes a trace. Raises ValueError if an engine could not have recorded it."""
    with tempfile.TemporaryDirectory(prefix="recoup-") as folder:
        path = Path(folder) / "trace"
        path.write_bytes(_Writer().file(records))
        return Trace.read(path)


def made_storages(record: Record) -> int:
    """Number of storages that the record makes; they are numbered from 0 in order of appearance."""
    if isinstance(record, OpRecord):
        return len(record.fresh)
    return int(isinstance(record, EventRecord) and record.tag in (*FROM_OUTSIDE, ADOPT))


def step_ends(records: Sequence[Record]) -> list[int]:
    """Indices of the marks of steps."""
    return [
        place
        for place, record in enumerate(records)
        if isinstance(record, EventRecord) and record.tag == STEP
    ]


def step_times_ns(records: Sequence[Record]) -> list[int | None]:
    """Clock time of each complete step, in nanoseconds; None if the trace does not have it."""
    times: list[int | None] = []
    took: int | None = None
    for record in records:
        if isinstance(record, EventRecord) and record.tag == TIME:
            took = record.index * 1000
        elif isinstance(record, EventRecord) and record.tag == STEP:
            times.append(took)
            took = None
    return times


def first_steps(records: Sequence[Record], count: int) -> list[Record]:
    """The records up to the mark of step `count`, counted from 1."""
    return list(records[: step_ends(records)[count - 1] + 1])


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._raw = b""
        self._at = 0
        self._storages = 0

    def records(self) -> Iterator[Record]:
        place = len(_MAGIC) + 4
        while True:
            raw_size, packed_size, _ = struct.unpack_from("<III", self._data, place)
            place += 12
            if raw_size == 0:
                return
            self._raw = zlib.decompress(self._data[place : place + packed_size])
            self._at = 0
            place += packed_size
            while self._at < raw_size:
                record = self._record()
                if record is not None:
                    self._storages += made_storages(record)
                    yield record

    def _number(self) -> int:
        raw, at = self._raw, self._at
        byte = raw[at]
        number = byte & 0x7F
        shift = 7
        while byte & 0x80:
            at += 1
            byte = raw[at]
            number |= (byte & 0x7F) << shift
            shift += 7
        self._at = at + 1
        return number

    def _numbers(self, count: int) -> tuple[int, ...]:
        return tuple(self._number() for _ in range(count))

    def _operands(self, bits: int) -> tuple[tuple[int, int], ...]:
        newest = self._storages - 1
        packed = self._numbers(self._number())
        return tuple((newest - (one >> bits), one & ((1 << bits) - 1)) for one in packed)

    def _record(self) -> Record | None:
        tag = self._number()
        if tag == _NAME:
            size = self._number()
            self._at += size
            return NameRecord(self._raw[self._at - size : self._at])
        if tag == _KERNEL:
            return KernelRecord(self._numbers(self._number()))
        if tag == _OP:
            name, kernel, flags, cost, workspace, kept = self._numbers(6)
            operands = self._operands(_OPERAND_BITS)
            fresh = tuple((self._number(), self._number()) for _ in range(self._number()))
            return OpRecord(name, kernel, flags, cost, workspace, kept, operands, fresh)
        if tag == _PLAN:
            self._numbers(4)
            self._numbers(3 * self._number())
            return None
        if tag == _LIST_OP:
            name = self._number()
            parts = ((self._number(), self._operands(1)) for _ in range(self._number()))
            return ListOpRecord(name, tuple(parts))
        if tag == _DEVICE:
            return DeviceRecord(self._numbers(_DEVICE_NUMBERS))
        return self._event(tag)

    def _event(self, tag: int) -> EventRecord:
        if tag in (EXTERNAL, OUTSIDE, ALLOCATE):
            return EventRecord(tag, size_bytes=self._number())
        if tag in (ADOPT, SEGMENT):
            return EventRecord(tag, self._number(), self._number())
        if tag in (HOLD, IN_SEGMENT):
            size_bytes = self._number()
            return EventRecord(tag, self._number(), size_bytes)
        if tag in (FREE, STEP, TIME):
            return EventRecord(tag, self._number())
        if tag in (SCOPE_EXIT, PARTS_END):
            return EventRecord(tag)
        if tag == RULE:
            return EventRecord(tag, self._storages - 1 - self._number(), self._number())
        return EventRecord(tag, self._storages - 1 - self._number())


class _Writer:
    def __init__(self) -> None:
        self._raw = bytearray()
        self._frames = [_MAGIC, struct.pack("<I", _VERSION)]
        self._storages = 0

    def file(self, records: Sequence[Record]) -> bytes:
        for record in records:
            self._add(record)
            self._storages += made_storages(record)
            if len(self._raw) >= _FRAME_BYTES:
                self._flush()
        self._flush()
        return b"".join([*self._frames, bytes(12)])

    def _flush(self) -> None:
        if self._raw:
            packed = zlib.compress(bytes(self._raw), 1)
            head = struct.pack("<III", len(self._raw), len(packed), zlib.crc32(packed))
            self._frames += [head, packed]
            self._raw.clear()

    def _put(self, *numbers: int) -> None:
        raw = self._raw
        for number in numbers:
            while number >= 0x80:
                raw.append(number & 0x7F | 0x80)
                number >>= 7
            raw.append(number)

    def _put_operands(self, operands: tuple[tuple[int, int], ...], bits: int) -> None:
        newest = self._storages - 1
        self._put(len(operands), *((newest - one) << bits | use for one, use in operands))

    def _add(self, record: Record) -> None:
        if isinstance(record, NameRecord):
            self._put(_NAME, len(record.text))
            self._raw += record.text
        elif isinstance(record, KernelRecord):
            self._put(_KERNEL, len(record.steps), *record.steps)
        elif isinstance(record, OpRecord):
            self._put(_OP, record.name, record.kernel, record.flags, record.cost_ns)
            self._put(record.workspace_bytes, record.record_bytes)
            self._put_operands(record.operands, _OPERAND_BITS)
            self._put(len(record.fresh), *(number for each in record.fresh for number in each))
        elif isinstance(record, ListOpRecord):
            self._put(_LIST_OP, record.name, len(record.parts))
            for workspace_bytes, operands in record.parts:
                self._put(workspace_bytes)
                self._put_operands(operands, 1)
        elif isinstance(record, DeviceRecord):
            self._put(_DEVICE, *record.numbers)
        else:
            self._add_event(record)

    def _add_event(self, event: EventRecord) -> None:
        self._put(event.tag)
        if event.tag in (EXTERNAL, OUTSIDE, ALLOCATE):
            self._put(event.size_bytes)
        elif event.tag in (ADOPT, SEGMENT):
            self._put(event.index, event.size_bytes)
        elif event.tag in (HOLD, IN_SEGMENT):
            self._put(event.size_bytes, event.index)
        elif event.tag in (FREE, STEP, TIME):
            self._put(event.index)
        elif event.tag == RULE:
            self._put(self._storages - 1 - event.index, event.size_bytes)
        elif event.tag not in (SCOPE_EXIT, PARTS_END):
            self._put(self._storages - 1 - event.index)
