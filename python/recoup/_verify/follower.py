"""Follows one of two runs: records its digests, compares them, or looks closer at one step."""

import contextlib
import dataclasses
from pathlib import Path
from typing import TextIO

import torch
from torch import Tensor
from torch.optim import Optimizer

from recoup._verify.bits import has_storage, pieces
from recoup._verify.compare import Difference, first_difference
from recoup._verify.op_log import OpLog
from recoup._verify.state import Watch
from recoup._verify.stream import Step, StreamReader, StreamWriter


@dataclasses.dataclass(frozen=True)
class Look:
    """A closer look at one step, which ends the run."""

    step: int
    key: tuple[str, str, str]
    """The item whose elements are wanted."""
    log: Path | None
    """File for the ops of the step. To observe ops changes how compiled code runs."""
    elements: Path
    """File for the elements of the item."""
    fill: int | None = None
    """Fill of unwritten memory while the run takes place, see `memory.filled`; None: none."""


@dataclasses.dataclass(frozen=True)
class Task:
    """What to do while a run takes place. Files are None if they are not wanted."""

    most_steps: int | None = None
    """Number of steps after which the run is ended."""
    stream: Path | None = None
    """File for the digests of all steps."""
    reference: Path | None = None
    """A file of digests to compare with. The first difference ends the run."""
    look: Look | None = None

    @property
    def fill(self) -> int | None:
        """See `Look`."""
        return None if self.look is None else self.look.fill


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What happened in a run."""

    steps: int
    """Number of steps of all optimizers, without one that the reference lacks."""
    difference: Difference | None
    """From the reference."""
    reference_ended_first: bool
    """Whether the run has a step more than the reference."""
    missing_steps: int
    """Number of steps that only the reference has, if the run ended by itself."""
    looked_at: str | None
    """Digest of the item that a closer look found; empty if the run lacks the item. None: the run
    did not get to the step."""


class Follower:
    """Follows a run from `start` to `end`, and is called when a step of an optimizer has ended."""

    def __init__(self, task: Task, words: list[str]) -> None:
        """words: the run as the user writes it, for the file of digests."""
        self._task = task
        self._words = words
        self._watch = Watch()
        self._files = contextlib.ExitStack()
        self._writer: StreamWriter | None = None
        self._reader: StreamReader | None = None
        self._log: OpLog | None = None
        self._steps = 0
        self.is_over = False
        """Whether the run is to end."""
        self._difference: Difference | None = None
        self._looked_at: str | None = None
        self._ended_first = False

    def start(self) -> None:
        """Opens the files and begins to follow. Call `end` even if it fails."""
        if self._task.stream is not None:
            file = self._open(self._task.stream)
            self._writer = StreamWriter(file, self._words, torch.__version__)
        if self._task.reference is not None:
            self._reader = StreamReader(self._task.reference)
        self._watch.start()
        self._begin_log()

    def _open(self, path: Path) -> TextIO:
        return self._files.enter_context(path.open("w", encoding="utf-8"))

    def on_step(self, optimizer: Optimizer) -> bool:
        """Accounts for a step of `optimizer`. Returns whether the run is to end."""
        self._steps += 1
        if self._task.look is None:
            self.is_over = self._compare(optimizer) or self._steps == self._task.most_steps
        else:
            self.is_over = self._steps == self._task.look.step
            if self.is_over:
                self._look(optimizer, self._task.look)
            else:
                self._watch.skip_step()
                self._begin_log()
        return self.is_over

    def _compare(self, optimizer: Optimizer) -> bool:
        """Whether the step differs from that of the reference, or the reference has ended."""
        step = Step(self._steps, tuple(item for item, _ in self._watch.items(optimizer)))
        if self._writer is not None:
            self._writer.add(step)
        if self._reader is None:
            return False
        expected = self._reader.next()
        if expected is not None:
            self._difference = first_difference(expected, step)
            return self._difference is not None
        if self._reader.is_cut:
            self._steps -= 1
        else:
            self._ended_first = True
        return True

    def _begin_log(self) -> None:
        look = self._task.look
        if look is not None and look.log is not None and self._steps == look.step - 1:
            self._log = OpLog(self._open(look.log))
            self._log.__enter__()  # type: ignore[no-untyped-call]

    def _look(self, optimizer: Optimizer, look: Look) -> None:
        if self._log is not None:
            self._log.stop()
        self._looked_at = ""
        for item, tensor in self._watch.items(optimizer):
            if item.key == look.key:
                self._looked_at = item.digest
                if tensor is not None and has_storage(tensor):
                    _write_elements(tensor, look.elements)

    def end(self) -> Outcome:
        """Ends what `start` began."""
        if self._log is not None:
            self._log.leave()
        self._watch.stop()
        if self._writer is not None:
            self._writer.end(self._steps, is_cut=self.is_over)
        self._files.close()
        missing = 0
        if self._reader is not None and not self.is_over:
            while self._reader.next() is not None:
                missing += 1
        compared = self._steps - self._ended_first
        return Outcome(compared, self._difference, self._ended_first, missing, self._looked_at)


def _write_elements(tensor: Tensor, path: Path) -> None:
    with torch.no_grad(), path.open("wb") as file:
        for piece in pieces(tensor.detach()):
            file.write(piece)
