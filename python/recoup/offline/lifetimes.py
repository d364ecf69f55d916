"""Input of the static planners from a trace: lifetimes, and ops that can run in place."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from recoup.offline.in_place import place_of_output
from recoup.offline.layout import Buffer, Op

if TYPE_CHECKING:
    from recoup.offline.traces import TracedOp


@dataclass
class _Storage:
    name: str
    lower: int
    size_bytes: int
    upper: int | None = None  # None: it lives to the end
    readers: list[int] = field(default_factory=list)  # steps that read its last content
    is_ours: bool = True  # no code that recoup does not see has its address


class Lifetimes:
    """A trace as steps of one op each. Storages and the workspace of every op become buffers."""

    def __init__(self, ops: "list[TracedOp]", events: list[tuple[str, int, int]]) -> None:
        self._storages: list[_Storage] = []
        self._run: list[tuple[TracedOp, int]] = []  # each op, and the first storage that it made
        for kind, index, size in events:
            if kind in ("external", "adopt"):
                name = f"{kind}#{len(self._storages)}"
                self._storages.append(_Storage(name, len(self._run), size))
                self._storages[-1].is_ours = kind == "adopt"
            elif kind in ("die", "disown"):
                self._storages[index].upper = len(self._run)
            elif kind == "escape":
                self._storages[index].is_ours = False
            elif kind == "op":
                self._add(ops[index])

    def _add(self, op: "TracedOp") -> None:
        step = len(self._run)
        for storage, reads, written in op.operands:
            readers = self._storages[storage].readers
            if written:
                readers.clear()
            elif reads:
                readers.append(step)
        self._run.append((op, len(self._storages)))
        for size in op.fresh_bytes:
            self._storages.append(_Storage(f"{op.name}#{len(self._storages)}", step, size))

    def buffers(self) -> list[Buffer]:
        """Storages that have bytes, in order of appearance, then the workspaces."""
        found = []
        for storage in self._storages:
            if storage.size_bytes > 0:
                upper = len(self._run) if storage.upper is None else storage.upper
                last = max(storage.lower + 1, upper)
                found.append(Buffer(storage.name, storage.lower, last, storage.size_bytes))
        for step, (op, _) in enumerate(self._run):
            if op.workspace_bytes > 0:
                name = f"workspace of {op.name}@{step}"
                found.append(Buffer(name, step, step + 1, op.workspace_bytes))
        return found

    def ops(self) -> list[Op]:
        """All ops of the trace, in terms of `buffers()`."""
        numbers: list[int] = []  # of each storage: the index of its buffer, if it has bytes
        count = 0
        for storage in self._storages:
            numbers.append(count)
            count += storage.size_bytes > 0
        reads: list[list[int]] = [[] for _ in self._run]
        for storage, number in zip(self._storages, numbers, strict=True):
            if storage.size_bytes > 0:
                for step in storage.readers:
                    reads[step].append(number)
        found = []
        for step, (op, fresh) in enumerate(self._run):
            inputs = self._places_for(op, step, fresh)
            pairs = tuple((numbers[fresh], numbers[storage]) for storage in inputs)
            found.append(Op(op.name, step, tuple(reads[step]), pairs))
        return found

    def _places_for(self, op: "TracedOp", step: int, fresh: int) -> list[int]:
        """Storages that the first output may overwrite, as far as the op itself is concerned."""
        place = place_of_output(op.name)
        if place is None or not op.fresh_bytes or op.fresh_bytes[0] == 0:
            return []
        inputs = [storage for storage, reads, written in op.operands if reads and not written]
        if place != "any input of its size":
            inputs = inputs[:1]
        if place != "first input":
            size = op.fresh_bytes[0]
            inputs = [i for i in inputs if self._storages[i].size_bytes == size]
        # Only storages whose last content the op reads: a later write would change the bytes.
        return [
            i for i in inputs if self._storages[i].is_ours and step in self._storages[i].readers
        ]
