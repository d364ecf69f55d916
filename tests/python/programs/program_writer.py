"""Writes random programs: lists of Python lines, each one a statement over tensors t0, t1, ...

The writer runs each line after writing it, so that it knows the shapes. Some lines fail; they must
fail alike in every run. `program_lines.py` has the kinds of lines.
"""

import copy
import io
import pickle
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import recoup

MAX_POOL = 14
MAX_NUMEL = 4096

# Marks lines that cannot be repeated after running out of memory half way.
ONCE = "  # once"


def saved_and_loaded(tensor: torch.Tensor) -> torch.Tensor:
    file = io.BytesIO()
    torch.save(tensor, file)
    file.seek(0)
    loaded = torch.load(file)
    assert isinstance(loaded, torch.Tensor)
    return loaded


def nothing(*_: Any) -> None:
    pass


def namespace(run: Any) -> dict[str, Any]:
    """The variables of a program. Without `run`, calls to recoup do nothing."""
    pins: list[Any] = []

    def pin(tensor: torch.Tensor) -> None:
        pinned = recoup.pin(tensor)
        pinned.__enter__()
        pins.append(pinned)

    def unpin() -> None:
        if pins:
            pins.pop().__exit__(None, None, None)

    return {
        "torch": torch,
        "F": F,
        "np": np,
        "copy": copy,
        "pickle": pickle,
        "gen": torch.Generator().manual_seed(5),
        "saved_and_loaded": saved_and_loaded,
        "arr": np.zeros((4, 4), np.float32),
        "evict": recoup.evict if run else nothing,
        "materialize": recoup.materialize if run else nothing,
        "pin": pin if run else nothing,
        "unpin": unpin if run else nothing,
        "note": nothing,
    }


def execute_line(line: str, env: dict[str, Any]) -> None:
    exec(compile(line, "<program>", "exec"), env)


class Generator:
    """Writes a program, and runs it plainly while writing it."""

    def __init__(self, seed: int, kinds: "dict[int, list[Kind]]") -> None:
        self.random = random.Random(seed)
        self.env = namespace(None)
        self._count = 0
        self._kinds = [(kind, weight) for weight, group in kinds.items() for kind in group]

    def program(self, length: int) -> list[str]:
        lines = [f"torch.manual_seed({self.random.randrange(1000)}){ONCE}"]
        lines += [f"{self.new()} = torch.randn(16, 32){ONCE}" for _ in range(4)]
        for line in lines:
            execute_line(line, self.env)
        while len(lines) < length:
            kinds, weights = zip(*self._kinds, strict=True)
            kind = self.random.choices(kinds, weights)[0]
            line = kind(self)
            if line is None:
                continue
            try:
                execute_line(line, self.env)
            except Exception:  # exceptions are part of the program
                pass
            lines.append(line)
            if len(self.tensors()) > MAX_POOL or self.random.random() < 0.05:
                lines.append(self.delete())
                execute_line(lines[-1], self.env)
            if self.random.random() < 0.06:
                lines.append("note()")
        return [*lines, "note()"]

    def tensors(self) -> dict[str, torch.Tensor]:
        return {
            name: value
            for name, value in self.env.items()
            if isinstance(value, torch.Tensor) and value.layout == torch.strided
        }

    def delete(self) -> str:
        names = sorted(self.tensors())
        big = [name for name in names if self.env[name].numel() > MAX_NUMEL]
        gone = set(self.random.sample(names, len(names) // 3)) | set(big[:2])
        return f"del {', '.join(sorted(gone))}"

    def choice(self, options: Any) -> Any:
        return self.random.choice(list(options))

    def number(self) -> float:
        return round(self.random.uniform(-2, 2), 2)

    def new(self) -> str:
        """A new name, or sometimes a used one, whose tensor dies."""
        if self._count > 4 and self.random.random() < 0.25:
            return str(self.choice(sorted(self.tensors()) or ["t0"]))
        self._count += 1
        return f"t{self._count - 1}"

    def assign(self, options: Any) -> str:
        """A line that assigns one of the options to a name."""
        return f"{self.new()} = {self.choice(options)}"

    def any(self, wanted: Callable[[torch.Tensor], bool] = lambda t: True) -> str | None:
        names = []
        for name, tensor in sorted(self.tensors().items()):
            try:
                if 0 < tensor.numel() <= MAX_NUMEL and wanted(tensor):
                    names.append(name)
            except RuntimeError:  # autograd forbids this view, as its base was written
                continue
        return self.choice(names) if names else None

    def floating(self, dim: int | None = None) -> str | None:
        return self.any(lambda t: t.dtype == torch.float32 and dim in (None, t.dim()))

    def like(self, name: str) -> str | None:
        """Name of a tensor of the same shape and dtype, possibly the same tensor."""
        shape, dtype = self.env[name].shape, self.env[name].dtype
        return self.any(lambda t: t.shape == shape and t.dtype == dtype)


Kind = Callable[[Generator], "str | None"]
"""Writes a line; None if no existing tensor suits."""
