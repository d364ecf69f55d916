"""Trace files that no recorder writes, one for each message of the reader."""

import struct
import zlib
from collections.abc import Iterable

from message_cases.case import Case, readings

MAGIC = b"\x89rtrace\n"
VERSION = 15


def record(*numbers: int) -> bytes:
    """A tag and its numbers, as docs/maintainers/trace-format.md has them."""
    data = bytearray()
    for number in numbers:
        while number > 0x7F:
            data.append(number & 0x7F | 0x80)
            number >>= 7
        data.append(number)
    return bytes(data)


def op(
    *,
    flags: int = 1,
    cost: int = 1,
    workspace: int = 0,
    kernel: int = 0,
    operands: Iterable[int] = (),
    fresh: Iterable[tuple[int, int]] = ((0, 64),),
) -> bytes:
    uses, made = list(operands), [number for each in fresh for number in each]
    numbers = [0, kernel, flags, cost, workspace, 0, len(uses), *uses, len(made) // 2, *made]
    return record(3, *numbers)


def file(records: bytes, *, version: int = VERSION) -> bytes:
    packed = zlib.compress(records, 1)
    frame = struct.pack("<III", len(records), len(packed), zlib.crc32(packed)) + packed
    return MAGIC + struct.pack("<I", version) + frame + bytes(12)


NAME, KERNEL, OUTSIDE = record(1, 1, 97), record(2, 1, 128), record(16, 64)
READ, WRITTEN = 1, 2
USES = op(operands=[READ], fresh=[])

RECORDS = {
    "an unknown tag": record(127),
    "an unknown rule": OUTSIDE + record(35, 0, 2),
    "a number of 70 bits": bytes([16, *[255] * 10]),
    "the index of an op beyond 32 bits": record(3, 1 << 33),
    "a storage of 2^63 bytes": record(16, 1 << 63),
    "a storage of 2^60 bytes": record(16, 1 << 60),
    "a name that is longer than its frame": record(1, 9, 97),
    "a name of 5,000 bytes": record(1, 5000) + bytes(5000),
    "a name that is not UTF-8": record(1, 2, 97) + b"\xff",
    "a name that occurs twice": NAME + NAME,
    "a list of three million steps": record(2, 3 * 10**6) + bytes(3 * 10**6),
    "a kernel that frees an impossible allocation": record(2, 1, 1 << 34 | 1),
    "a kernel that frees another kernel's allocation": record(2, 1, 3),
    "a kernel that allocates 0 bytes": record(2, 1, 0),
    "an op without a kernel": NAME + op(),
    "an op with 2^35 copies": NAME + KERNEL + record(3, 0, 0, 1 << 40),
    "an op with more copies than allocations": NAME + KERNEL + record(3, 0, 0, 99),
    "an op that reads a missing storage": NAME + KERNEL + op(operands=[READ]),
    "an op that reads a dead storage": NAME
    + KERNEL
    + OUTSIDE
    + record(20, 0)
    + op(operands=[READ]),
    "an op that reads a storage twice": NAME + KERNEL + OUTSIDE + op(operands=[READ, READ]),
    "an op that overwrites a storage that it reads": NAME
    + KERNEL
    + OUTSIDE
    + op(operands=[READ | 4]),
    "an op that writes a storage that a result may overwrite": NAME
    + KERNEL
    + OUTSIDE
    + op(operands=[READ | WRITTEN | 16]),
    "an op that writes part of a storage without reading it": NAME
    + KERNEL
    + OUTSIDE
    + op(operands=[WRITTEN]),
    "an op of 2^60 ns": NAME + KERNEL + op(cost=1 << 60),
    "an op that fails and returns a result": NAME + KERNEL + op(flags=8),
    "an op that returns an allocation its kernel does not hold": NAME
    + KERNEL
    + op(fresh=[(1, 64)]),
    "an op that returns more bytes than it allocated": NAME + KERNEL + op(fresh=[(0, 65)]),
    "an op that keeps an allocation it does not return": NAME + KERNEL + op(fresh=[]),
    "ops that use 2^58 bytes": NAME + record(2, 0) + record(16, 1 << 46) + USES * 4097,
    "storages of 2^48 bytes": record(16, 1 << 47) * 2,
    "an op on lists inside another": NAME + record(5, 0, 0) * 2,
    "an op on lists without a name": record(5, 0, 0),
    "a part with an operand twice": NAME + OUTSIDE + record(5, 0, 1, 64, 2, 0, 0),
    "an end of parts without a beginning": record(30),
    "a device with unknown flags": record(6, 64, 1, 0, 0, 4),
    "a device after the first event": OUTSIDE + record(6, 64, 1, 0, 0, 0),
    "a device with an alignment of 3": record(6, 3, 1, 0, 0, 0),
    "a block that no kernel holds": record(8, 64, 0),
    "a storage in a segment that does not exist": record(9, 64, 0),
    "segments out of order": record(33, 1, 64),
    "a segment beyond 32 bits": record(9, 64, (1 << 32) - 2),
    "a plan with unknown flags": record(4, 1, 2),
    "a plan of 2^60 ns": record(4, 1, 1, 64, 1 << 60, 0, 0, 0),
    "a plan without a list of evictions that names some": record(4, 1, 0, 64, 1, 1, 1, 1, 0, 0, 0),
    "a plan out of order": record(4, 1, 1, 64, 1, 2, 2, 1, 0, 1, 1, 0, 0, 0),
    "a plan for a million ops": record(4, 1, 1, 64, 1, 1, 10**6, 1, 0, 0, 0),
    "a plan with blocks out of order": record(
        4, 1, 1, 64, 1, 0, 2, *(2, 0, 64, 0, 0), *(1, 0, 64, 0, 0), 0
    ),
    "a plan with an unaligned block": record(4, 1, 1, 64, 1, 0, 1, 1, 0, 64, 32, 32, 0),
    "a plan with an unknown storage": record(4, 1, 1, 64, 1, 0, 0, 1, 64, 0, 0, 9, 0, 0),
    "a storage that leaves the pool without escaping": OUTSIDE + record(31, 0),
    "a block that is freed twice": record(17, 64) + record(18, 0) * 2,
    "a block that becomes a larger storage": record(17, 64) + record(19, 0, 65),
    "a storage of the pool that is disowned": NAME + KERNEL + op() + record(26, 0),
    "a storage that is not pinned": OUTSIDE + record(24, 0),
    "an escape that ends without having begun": OUTSIDE + record(34, 0),
    "a step without a name": record(27, 0),
    "a scope that is left too many times": record(28) * 2000,
    "a truncated record": record(17),
}

GOOD = file(NAME + KERNEL + op() * 3)
FILES = {
    "a text": b"hello, world",
    "a file that ends after its magic number": MAGIC,
    "another version": file(NAME, version=99),
    "a trace without its end": GOOD[:-12],
    "a trace that is cut in a frame": GOOD[:30],
    "a trace with bytes after its end": GOOD + b"more",
    "a frame of no size": MAGIC + struct.pack("<IIII", VERSION, 1 << 31, 0, 0) + bytes(12),
    "a frame that was changed": GOOD[:28] + b"\xff\xff\xff" + GOOD[31:],
    "a checksum that does not match": GOOD[:20] + b"\0\0\0\0" + GOOD[24:],
}


def cases() -> list[Case]:
    contents = FILES | {what: file(records) for what, records in RECORDS.items()}
    return readings('recoup.Trace.read("file.rtrace")', contents)


def steps(lengths: Iterable[int]) -> bytes:
    """A recording of steps: in each a chain of ops, and as many that read it from its end."""
    records = NAME + record(1, 4, *b"step") + record(2, 1, 1 << 17) + record(16, 1 << 12)
    made = 1
    for length in lengths:
        first = made
        for index in range(2 * length):
            source = made - 1 if index < length else first + 2 * length - 1 - index
            places = {made - 1, max(source, 0)}
            operands = [(made - 1 - place) << 5 | READ for place in sorted(places)]
            records += op(cost=1000 * (1 + index), operands=operands, fresh=[(0, 1 << 16)])
            made += 1
        for storage in range(first, made):
            records += record(20, made - 1 - storage)
        records += record(32, 400) + record(27, 1)
        # The next step reads what was there before.
        records += record(16, 1 << 12)
        made += 1
    return file(records)
