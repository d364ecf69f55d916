"""Traces: what a program did, recorded once, to be simulated under any policy and budget."""

import dataclasses
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from recoup import _C
from recoup.decisions import Decision
from recoup.run import Options
from recoup.stats import Stats

Status = Literal["ok", "out of budget", "too slow"]


@dataclasses.dataclass(frozen=True)
class Simulation:
    """What a run would have done."""

    policy: str
    budget_bytes: int
    status: Status
    reason: str
    """Why it ran out of budget; empty otherwise."""
    ops: int
    """Ops of the program that ran."""
    plain_cost_ns: int
    """What they cost."""
    replay_cost_ns: int
    """What the replays cost."""
    time_ratio: float
    """Both over the first: the compute overhead that papers plot."""
    stats: Stats
    decisions: list[Decision] = dataclasses.field(repr=False)
    """In order; empty unless they were asked for."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON: all but the decisions."""
        row = dataclasses.asdict(self)
        del row["decisions"]
        return row


@dataclasses.dataclass(frozen=True)
class TracedOp:
    """An op of a trace."""

    name: str
    cost_ns: int
    workspace_bytes: int
    repeatable: bool
    random: bool
    failed: bool
    operands: list[tuple[int, bool, bool]]
    """(storage, whether its bytes are read, whether it is written) of each distinct storage."""
    fresh_bytes: list[int]
    """Of the storages that it made."""


class Trace:
    """A recorded run. `read` one that `recoup.trace` or `recoup run --trace` has made."""

    def __init__(self, trace: _C.Trace) -> None:
        self._trace = trace

    @staticmethod
    def read(path: str | os.PathLike[str]) -> "Trace":
        """Raises OSError, or ValueError with the offset when it is no whole trace."""
        return Trace(_C.Trace.read(os.fspath(path)))

    def write(self, path: str | os.PathLike[str]) -> None:
        """Raises OSError. No part of a file is left behind."""
        self._trace.write(os.fspath(path))

    @property
    def op_count(self) -> int:
        """Ops of the program."""
        return self._trace.op_count()

    def ops(self) -> list[TracedOp]:
        """In the order in which the program ran them."""
        return [TracedOp(**row) for row in self._trace.ops()]

    def steps(self) -> int:
        """Training steps that were marked."""
        return sum(kind == "step" for kind, _, _ in self._trace.events())

    def unbudgeted_peak_bytes(self) -> int:
        """The most bytes that the program holds at once when nothing is ever evicted."""
        return self._trace.unbudgeted_peak_bytes(_C.Options(**dataclasses.asdict(_options(1))))

    def simulate(
        self,
        budget_bytes: int,
        *,
        policy: str = "dtr",
        max_time_ratio: float = 10.0,
        layout: bool = True,
        decisions: bool = False,
        **options: Any,
    ) -> Simulation:
        """Runs the engine over the trace, on a device with no memory.

        max_time_ratio: the run ends as "too slow" when it costs more than that many times the
            program's own ops. 0: no bound.
        layout: values lie at addresses, so that free memory may be in pieces. False: only bytes
            count, as in simulators that have no pool.
        decisions: keep what the engine decided.
        options: as `recoup.budget` has them.

        Raises ValueError for options that make no sense; not fitting is a result.
        """
        made = _options(budget_bytes, policy=policy, **options)
        if not layout:
            made = dataclasses.replace(made, address_bytes=max(budget_bytes, 1 << 40) << 8)
        row = self._trace.simulate(
            _C.Options(**dataclasses.asdict(made)),
            max_time_ratio=max_time_ratio,
            decisions=decisions,
        )
        stats = Stats.from_engine(row.pop("stats"))
        decided = Decision.rows(row.pop("decisions"))
        return Simulation(
            policy=policy, budget_bytes=budget_bytes, stats=stats, decisions=decided, **row
        )


def _options(budget_bytes: int, **changes: Any) -> Options:
    import recoup  # not above: the package imports this module

    if budget_bytes < 1:
        raise ValueError(f"a budget must be at least 1 byte; got {budget_bytes}")
    made = recoup.budget(1, **changes).options
    return dataclasses.replace(made, budget_bytes=budget_bytes)


def read_dtr_log(path: str | os.PathLike[str]) -> Trace:
    """Imports a log of the DTR authors' simulator (JSON lines).

    Names share storages as aliases say; a mutation writes its storages in place. Views cost nothing
    and are left out, since storages are what is evicted and replayed here. Raises OSError, or
    ValueError with the line.
    """
    return _DtrImport(Path(path)).run()


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
        import gzip

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
