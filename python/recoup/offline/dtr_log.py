"""Logs of the simulator that was published with DTR."""

import gzip
import json
import os
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recoup.offline import _C
from recoup.offline.trace_names import is_dtr_log
from recoup.offline.traces import Trace


def read_dtr_log(path: str | os.PathLike[str]) -> Trace:
    """Imports a log of the DTR authors' simulator (JSON lines).

    Aliases share a storage; a mutation writes its storages in place. Views cost nothing and are
    left out, because recoup evicts and replays storages. Raises OSError, or ValueError with the
    line.
    """
    made = _DtrImport()
    apply_dtr_log(path, made.apply)
    try:
        return Trace(made.builder.build())
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)}: {error}") from error


def read_any_trace(path: str) -> Trace:
    """Reads a log of the DTR authors if the name ends in .log or .log.gz, else a trace."""
    return read_dtr_log(path) if is_dtr_log(path) else Trace.read(path)


# ---- lines ----


@dataclass(frozen=True)
class DtrResult:
    """A result of a call."""

    name: str
    size_bytes: int
    alias: int
    """Position of the argument whose storage it shares; -1: it has its own."""


@dataclass(frozen=True)
class DtrInstruction:
    """A line of the log, with the lines after it that describe its results."""

    kind: str
    """CONSTANT, CALL, MUTATE, COPY, COPY_FROM, RELEASE or ANNOTATE."""
    name: str
    """Name of the op, the constant, the copy's target or the released name; or the annotation."""
    source: str = ""
    """Source of a copy."""
    cost_ns: int = 0
    arguments: tuple[str, ...] = ()
    written: tuple[int, ...] = ()
    """Positions of the arguments that a mutation writes."""
    results: tuple[DtrResult, ...] = ()
    """Results of a call; of a constant, the constant itself."""


def apply_dtr_log(path: str | os.PathLike[str], apply: Callable[[DtrInstruction], object]) -> None:
    """Calls `apply` with each instruction of a log. Raises OSError, or ValueError with the line.

    A KeyError, ValueError, IndexError or TypeError of `apply` is reported as an error of the log.
    """
    lines = _Lines(Path(path))
    try:
        for instruction in lines.instructions():
            apply(instruction)
    except KeyError as error:
        reason = f"{error.args[0]!r:.100} is missing or unknown"
    except RecursionError:
        reason = "its lists are nested too deeply"
    except gzip.BadGzipFile as error:
        reason = f"not a gzip file: {error}"
    except (ValueError, IndexError, TypeError, EOFError, zlib.error) as error:
        reason = str(error)
    else:
        return
    raise ValueError(f"{path}: line {lines.line}: {reason}")


# A line has a few hundred bytes for a name, a size and arguments; an endless line must not fill
# the memory.
_MOST_LINE = 1 << 20
# The limits of csrc/trace/limits.h, so that no sum overflows.
_MOST_SIZE = 1 << 47
_MOST_COST = 1 << 53
_MOST_TRAFFIC = 1 << 58
_MOST_NAME = 1024  # characters, of up to 4 bytes each


class _Lines:
    """Reads a log; `line` is the line number of the current instruction."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.line = 0
        self.sizes: dict[str, int] = {}
        self.aliases: dict[str, int] = {}
        self.traffic = 0  # bytes of all results
        self.cost = 0  # ns of all ops

    def instructions(self) -> Iterator[DtrInstruction]:
        head: dict[str, Any] | None = None
        head_line = 0
        for number, row in enumerate(self._rows(), start=1):
            kind = _text(row, "INSTRUCTION")
            if kind == "MEMORY":
                size = _natural(row["MEMORY"], _MOST_SIZE)
                self.traffic += size
                if self.traffic > _MOST_TRAFFIC:
                    raise ValueError(f"the sizes so far add up to more than {_MOST_TRAFFIC} bytes")
                self.sizes[_text(row, "NAME")] = size
            elif kind == "ALIAS":
                self.aliases[_text(row, "NAME")] = _alias(row["ALIAS"])
            else:
                if head is not None:
                    self.line = head_line
                    yield self._instruction(head)
                head, head_line = row, number
        if head is not None:
            self.line = head_line
            yield self._instruction(head)

    def _rows(self) -> Iterator[dict[str, Any]]:
        opener = gzip.open if self.path.suffix == ".gz" else open
        with opener(self.path, "rb") as file:
            number = 0
            while True:
                number += 1
                self.line = number
                text = file.readline(_MOST_LINE + 1)
                if not text:
                    return
                if len(text) > _MOST_LINE:
                    raise ValueError(f"the line is longer than {_MOST_LINE} bytes")
                row = json.loads(text)
                if not isinstance(row, dict):
                    raise ValueError("not a JSON object")
                yield row

    def _instruction(self, row: dict[str, Any]) -> DtrInstruction:
        kind = row["INSTRUCTION"]
        if kind in ("CALL", "MUTATE"):
            arguments = _names(row["ARGS"])
            cost = _natural(row["TIME"], _MOST_COST - self.cost)
            self.cost += cost
            made = DtrInstruction(
                kind,
                _text(row, "NAME"),
                cost_ns=cost,
                arguments=tuple(arguments),
                written=tuple(_place(i, arguments) for i in _list(row.get("MUTATE", []))),
                results=tuple(
                    self._result(name, arguments) for name in _names(row.get("RESULT", []))
                ),
            )
        elif kind == "CONSTANT":
            name = _text(row, "NAME")
            made = DtrInstruction(kind, name, results=(self._result(name, []),))
        elif kind in ("COPY", "COPY_FROM"):
            made = DtrInstruction(kind, _text(row, "DST"), source=_text(row, "SRC"))
        elif kind == "RELEASE":
            made = DtrInstruction(kind, _text(row, "NAME"))
        elif kind == "ANNOTATE":
            made = DtrInstruction(kind, _text(row, "ANNOTATION"))
        else:
            raise ValueError(f"unknown instruction {kind!r:.100}")
        self.sizes.clear()
        self.aliases.clear()
        return made

    def _result(self, name: str, arguments: list[str]) -> DtrResult:
        alias = self.aliases.get(name, -1)
        if alias < 0:
            return DtrResult(name, self.sizes.get(name, 0), -1)
        return DtrResult(name, 0, _place(alias, arguments))


def _text(row: dict[str, Any], key: str) -> str:
    value = row[key]
    if not isinstance(value, str):
        raise ValueError(f"{key} is not a string")
    return _name(value)


def _name(value: str) -> str:
    if len(value) > _MOST_NAME:
        raise ValueError(f"{value!r:.50}... has more than {_MOST_NAME} characters")
    value.encode()  # raises UnicodeEncodeError, a ValueError, for an unpaired surrogate
    return value


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise ValueError(f"{value!r:.100} is not a list")
    return value


def _names(value: object) -> list[str]:
    """A list of names; some logs have it as JSON text."""
    names = _list(json.loads(value) if isinstance(value, str) else value)
    for name in names:
        if not isinstance(name, str):
            raise ValueError(f"{name!r:.100} is not a name")
    return [_name(name) for name in names if isinstance(name, str)]


def _whole(value: object) -> int:
    if isinstance(value, str | int) and not isinstance(value, bool):
        text = str(value) if isinstance(value, str) or abs(value) < 1 << 64 else "larger"
        if re.fullmatch(r"-?[0-9]{1,20}", text):
            return int(text)
    raise ValueError(f"{value!r:.100} is not a whole number of at most 20 digits")


def _natural(value: object, most: int) -> int:
    number = _whole(value)
    if number < 0:
        raise ValueError(f"{number} is negative")
    if number > most:
        raise ValueError(f"{number} is above the maximum, {most}")
    return number


def _alias(value: object) -> int:
    """Position of an argument; -1: no alias."""
    number = _whole(value)
    if number > _MOST_LINE:
        raise ValueError(f"argument {number} does not exist")
    return number


def _place(value: object, arguments: list[str]) -> int:
    place = _whole(value)
    if not 0 <= place < len(arguments):
        raise ValueError(f"argument {place} does not exist")
    return place


# ---- as a trace ----


class _DtrImport:
    """Builds a trace. Storages are numbers in the trace; names refer to storages."""

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
            case "ANNOTATE" if made.name == "START":  # others mark positions within a step
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
        # A block has at least one byte.
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
