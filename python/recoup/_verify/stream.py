"""Streams of digests: what a run held after each step of an optimizer, as a file.

A file has one JSON value per line: first a header, then the records of the steps, then the end.
"""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

FORMAT = 2
KINDS = ("loss", "buffer", "gradient", "parameter", "optimizer state", "generator")
"""Kinds of items, in the order in which a step computes them."""


@dataclasses.dataclass(frozen=True)
class Item:
    """A tensor, a loss or the state of a random generator after a step."""

    kind: str
    """One of KINDS."""
    owner: str
    """Class of the outermost module, and its number among all outermost modules, or empty."""
    name: str
    """Qualified name within the owner."""
    dtype: str
    shape: tuple[int, ...]
    digest: str
    """Digest of the bits."""
    value: str = ""
    """The number, if there is just one."""

    @property
    def key(self) -> tuple[str, str, str]:
        """What identifies the item within a step."""
        return self.kind, self.owner, self.name


@dataclasses.dataclass(frozen=True)
class Step:
    """The items after a step of an optimizer, in the order in which the step computes them."""

    number: int
    """Number of the step, from 1 on, counting the steps of all optimizers."""
    items: tuple[Item, ...]


class StreamWriter:
    """Writes a stream, step by step."""

    def __init__(self, file: TextIO, program: list[str], torch_version: str) -> None:
        self._file = file
        header = {"recoup digests": FORMAT, "torch": torch_version, "program": program}
        self._line(header)

    def add(self, step: Step) -> None:
        """Writes the record of a step."""
        items = [list(dataclasses.astuple(item)) for item in step.items]
        self._line({"step": step.number, "items": items})

    def end(self, steps: int, *, is_cut: bool) -> None:
        """Writes that the run ended after `steps` steps. is_cut: it was not to run longer."""
        self._line({"steps": steps, "is_cut": is_cut})

    def _line(self, value: Any) -> None:
        self._file.write(json.dumps(value) + "\n")
        self._file.flush()


class StreamReader:
    """Reads a stream. Raises OSError if the file cannot be read, ValueError if it is no stream."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines = self._read()
        header = self._next()
        if header.get("recoup digests") != FORMAT:
            raise ValueError(f"{path}: not a file of `recoup verify --record` of this version")
        self.steps: int | None = None
        """Number of steps of the run, once its end has been read."""
        self.is_cut = False
        """Whether the run was ended after these steps, once its end has been read."""

    def next(self) -> Step | None:
        """The next step; None at the end. ValueError: the file is damaged or incomplete."""
        if self.steps is not None:
            return None
        record = self._next()
        try:
            if "steps" in record:
                self.steps, self.is_cut = int(record["steps"]), bool(record["is_cut"])
                return None
            items = tuple(
                Item(
                    str(kind),
                    str(owner),
                    str(name),
                    str(dtype),
                    tuple(shape),
                    str(bits),
                    str(value),
                )
                for kind, owner, name, dtype, shape, bits, value in record["items"]
            )
            return Step(int(record["step"]), items)
        except (KeyError, TypeError, ValueError):
            raise ValueError(f"{self._path}: a step in it is damaged") from None

    def _read(self) -> Iterator[str]:
        with self._path.open(encoding="utf-8", errors="replace") as file:
            yield from file

    def _next(self) -> dict[str, Any]:
        line = next(self._lines, None)
        if line is None:
            raise ValueError(f"{self._path}: incomplete: the run that wrote it did not end")
        try:
            value = json.loads(line)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise ValueError(f"{self._path}: not a file of `recoup verify --record`")
        return value
