"""Logs of the simulator that was published with DTR."""

import argparse
import gzip
import json
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recoup import _C
from recoup.traces import Trace

_SUFFIXES = (".log", ".log.gz")


def read_dtr_log(path: str | os.PathLike[str]) -> Trace:
    """Imports a log of the DTR authors' simulator (JSON lines).

    Names share storages as aliases say; a mutation writes its storages in place. Views cost nothing
    and are left out, since storages are what is evicted and replayed here. Raises OSError, or
    ValueError with the line.
    """
    made = _DtrImport()
    apply_dtr_log(path, made.apply)
    return Trace(made.builder.build())


def is_dtr_log(path: str) -> bool:
    """By its name."""
    return path.endswith(_SUFFIXES)


def read_any_trace(path: str) -> Trace:
    """A log of the DTR authors by its name (.log, .log.gz), a trace otherwise."""
    return read_dtr_log(path) if is_dtr_log(path) else Trace.read(path)


def add_trace_argument(parser: argparse.ArgumentParser) -> None:
    """`trace`: what `read_any_trace` reads."""
    parser.add_argument(
        "trace",
        metavar="TRACE",
        help="a file of `recoup run --trace`, or a log of the DTR authors (.log, .log.gz)",
    )


# ---- lines ----


@dataclass(frozen=True)
class DtrResult:
    """What a call returns."""

    name: str
    size_bytes: int
    alias: int
    """The place of the argument whose storage it shares; -1: it has its own."""


@dataclass(frozen=True)
class DtrInstruction:
    """A line, and the lines behind it that say of its results what they are."""

    kind: str
    """CONSTANT, CALL, MUTATE, COPY, COPY_FROM, RELEASE or ANNOTATE."""
    name: str
    """Of the op, the constant, the copy's target or what is released; or the annotation."""
    source: str = ""
    """Of a copy."""
    cost_ns: int = 0
    arguments: tuple[str, ...] = ()
    written: tuple[int, ...] = ()
    """Places of the arguments that a mutation writes."""
    results: tuple[DtrResult, ...] = ()
    """Of a call, and the constant itself."""


def apply_dtr_log(path: str | os.PathLike[str], apply: Callable[[DtrInstruction], object]) -> None:
    """Calls `apply` with each instruction of a log. Raises OSError, or ValueError with the line.

    A KeyError, ValueError, IndexError or TypeError of `apply` is a fault of the log.
    """
    lines = _Lines(Path(path))
    try:
        for instruction in lines.instructions():
            apply(instruction)
    except (KeyError, ValueError, IndexError, TypeError, EOFError, zlib.error) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"{path}: line {lines.line}: {reason}") from error


class _Lines:
    """Reads a log; `line` is that of the instruction at hand."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.line = 0
        self.sizes: dict[str, int] = {}
        self.aliases: dict[str, int] = {}

    def instructions(self) -> Iterator[DtrInstruction]:
        opener = gzip.open if self.path.suffix == ".gz" else open
        head: dict[str, Any] | None = None
        head_line = 0
        with opener(self.path, "rt", encoding="utf-8") as file:
            for number, text in enumerate(file, start=1):
                self.line = number
                row = json.loads(text)
                kind = row["INSTRUCTION"]
                if kind == "MEMORY":
                    self.sizes[row["NAME"]] = _natural(row["MEMORY"])
                elif kind == "ALIAS":
                    self.aliases[row["NAME"]] = int(row["ALIAS"])
                else:
                    if head is not None:
                        self.line = head_line
                        yield self._instruction(head)
                    head, head_line = row, number
        if head is not None:
            self.line = head_line
            yield self._instruction(head)

    def _instruction(self, row: dict[str, Any]) -> DtrInstruction:
        kind = row["INSTRUCTION"]
        if kind in ("CALL", "MUTATE"):
            arguments = row["ARGS"]
            if isinstance(arguments, str):
                arguments = json.loads(arguments)
            made = DtrInstruction(
                kind,
                row["NAME"],
                cost_ns=_natural(row["TIME"]),
                arguments=tuple(arguments),
                written=tuple(_place(i, arguments) for i in row.get("MUTATE", [])),
                results=tuple(self._result(name, arguments) for name in row.get("RESULT", [])),
            )
        elif kind == "CONSTANT":
            made = DtrInstruction(kind, row["NAME"], results=(self._result(row["NAME"], []),))
        elif kind in ("COPY", "COPY_FROM"):
            made = DtrInstruction(kind, row["DST"], source=row["SRC"])
        elif kind == "RELEASE":
            made = DtrInstruction(kind, row["NAME"])
        elif kind == "ANNOTATE":
            made = DtrInstruction(kind, row["ANNOTATION"])
        else:
            raise ValueError(f"there is no instruction {kind!r}")
        self.sizes.clear()
        self.aliases.clear()
        return made

    def _result(self, name: str, arguments: list[str]) -> DtrResult:
        alias = self.aliases.get(name, -1)
        if alias < 0:
            return DtrResult(name, self.sizes.get(name, 0), -1)
        return DtrResult(name, 0, _place(alias, arguments))


def _natural(text: object) -> int:
    number = int(str(text))
    if number < 0:
        raise ValueError(f"{number} is negative")
    return number


def _place(text: object, arguments: list[str]) -> int:
    place = _natural(text)
    if place >= len(arguments):
        raise ValueError(f"there is no argument {place}")
    return place


# ---- as a trace ----


class _DtrImport:
    """Makes a trace. A storage is a number of it; names refer to storages."""

    def __init__(self) -> None:
        self.builder = _C.TraceBuilder()
        self.names: dict[str, int] = {}
        self.kernels: dict[tuple[int, ...], int] = {}
        self.storages = 0
        self.storage_of: dict[str, int] = {}
        self.holders: dict[int, int] = {}

    def apply(self, made: DtrInstruction) -> None:
        match made.kind:
            case "CONSTANT":
                self.builder.add_event("external", 0, max(1, made.results[0].size_bytes))
                self._new_storage(made.name)
            case "CALL" | "MUTATE":
                self._add_op(made)
            case "COPY":
                self._hold(made.name, self.storage_of[made.source])
            case "COPY_FROM":
                source = self.storage_of[made.source]
                self.holders[source] += 1
                self._release(made.name)
                self.holders[source] -= 1
                self._hold(made.name, source)
            case "RELEASE":
                self._release(made.name)
            case "ANNOTATE" if made.name == "START":  # the others are places within a step
                self.builder.add_event("step", self._name(made.name), 0)

    def _name(self, text: str) -> int:
        if text not in self.names:
            self.names[text] = len(self.names)
            self.builder.add_name(text)
        return self.names[text]

    def _kernel(self, sizes: list[int]) -> int:
        key = tuple(sizes)
        if key not in self.kernels:
            self.kernels[key] = len(self.kernels)
            self.builder.add_kernel(sizes)
        return self.kernels[key]

    def _hold(self, name: str, storage: int) -> None:
        self.storage_of[name] = storage
        self.holders[storage] = self.holders.get(storage, 0) + 1

    def _release(self, name: str) -> None:
        storage = self.storage_of.pop(name)
        self.holders[storage] -= 1
        if self.holders[storage] == 0:
            self.builder.add_event("die", storage, 0)

    def _new_storage(self, name: str) -> None:
        self._hold(name, self.storages)
        self.storages += 1

    def _add_op(self, op: DtrInstruction) -> None:
        written = {self.storage_of[op.arguments[place]] for place in op.written}
        reads = dict.fromkeys(self.storage_of[name] for name in op.arguments)
        operands = [(storage, True, storage in written, False) for storage in reads]
        # A block has bytes.
        sizes = [max(1, result.size_bytes) for result in op.results if result.alias < 0]
        if sizes or written:
            self.builder.add_op(
                self._name(op.name), self._kernel(sizes), op.cost_ns, True, operands, sizes
            )
        for result in op.results:
            if result.alias < 0:
                self._new_storage(result.name)
            else:
                self._hold(result.name, self.storage_of[op.arguments[result.alias]])
