"""Logs of the simulator that was published with DTR."""

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from recoup import _C
from recoup.traces import Trace


def read_dtr_log(path: str | os.PathLike[str]) -> Trace:
    """Imports a log of the DTR authors' simulator (JSON lines).

    Names share storages as aliases say; a mutation writes its storages in place. Views cost nothing
    and are left out, since storages are what is evicted and replayed here. Raises OSError, or
    ValueError with the line.
    """
    return _DtrImport(Path(path)).run()


def read_any_trace(path: str) -> Trace:
    """A log of the DTR authors by its name (.log, .log.gz), a trace otherwise."""
    return read_dtr_log(path) if path.endswith((".log", ".log.gz")) else Trace.read(path)


class _DtrImport:
    """Reads a log line by line. A storage is a number of the trace; names refer to storages."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.builder = _C.TraceBuilder()
        self.names: dict[str, int] = {}
        self.kernels: dict[tuple[int, ...], int] = {}
        self.storages = 0
        self.storage_of: dict[str, int] = {}
        self.holders: dict[int, int] = {}
        self.line = 0
        # A call, and what the lines behind it say of its results.
        self.call: dict[str, Any] | None = None
        self.sizes: dict[str, int] = {}
        self.aliases: dict[str, int] = {}

    def run(self) -> Trace:
        try:
            for row in self._rows():
                self.line += 1
                self._apply(row)
            self._end_call()
        except (KeyError, ValueError, IndexError, TypeError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise ValueError(f"{self.path}: line {self.line}: {reason}") from error
        return Trace(self.builder.build())

    def _rows(self) -> Iterator[dict[str, Any]]:
        opener = gzip.open if self.path.suffix == ".gz" else open
        with opener(self.path, "rt", encoding="utf-8") as file:
            for text in file:
                yield json.loads(text)

    def _apply(self, row: dict[str, Any]) -> None:
        kind = row["INSTRUCTION"]
        if kind == "MEMORY":
            self.sizes[row["NAME"]] = _natural(row["MEMORY"])
            return
        if kind == "ALIAS":
            self.aliases[row["NAME"]] = int(row["ALIAS"])
            return
        self._end_call()
        if kind == "CONSTANT":
            self.call = {"INSTRUCTION": kind, "RESULT": [row["NAME"]]}
        elif kind in ("CALL", "MUTATE"):
            self.call = row
        elif kind == "COPY":
            self._hold(row["DST"], self.storage_of[row["SRC"]])
        elif kind == "COPY_FROM":
            source = self.storage_of[row["SRC"]]
            self.holders[source] += 1
            self._release(row["DST"])
            self.holders[source] -= 1
            self._hold(row["DST"], source)
        elif kind == "RELEASE":
            self._release(row["NAME"])
        elif kind == "ANNOTATE":
            if row["ANNOTATION"] == "START":  # the others are places within a step
                self.builder.add_event("step", self._name(row["ANNOTATION"]), 0)
        else:
            raise ValueError(f"there is no instruction {kind!r}")

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

    def _end_call(self) -> None:
        call, self.call = self.call, None
        if call is None:
            return
        if call["INSTRUCTION"] == "CONSTANT":
            (name,) = call["RESULT"]
            self.builder.add_event("external", 0, max(1, self.sizes.get(name, 0)))
            self._new_storage(name)
        else:
            self._end_op(call)
        self.sizes.clear()
        self.aliases.clear()

    def _end_op(self, call: dict[str, Any]) -> None:
        arguments = call["ARGS"]
        if isinstance(arguments, str):
            arguments = json.loads(arguments)
        results = call.get("RESULT", [])
        written = {self.storage_of[arguments[int(i)]] for i in call.get("MUTATE", [])}
        reads = dict.fromkeys(self.storage_of[name] for name in arguments)
        operands = [(storage, True, storage in written, False) for storage in reads]
        fresh = [name for name in results if self.aliases.get(name, -1) < 0]
        sizes = [max(1, self.sizes.get(name, 0)) for name in fresh]  # a block has bytes
        if fresh or written:
            self.builder.add_op(
                self._name(call["NAME"]),
                self._kernel(sizes),
                _natural(call["TIME"]),
                True,
                operands,
                sizes,
            )
        for name in results:
            alias = self.aliases.get(name, -1)
            if alias < 0:
                self._new_storage(name)
            else:
                self._hold(name, self.storage_of[arguments[alias]])


def _natural(text: object) -> int:
    number = int(str(text))
    if number < 0:
        raise ValueError(f"{number} is negative")
    return number
