"""Compares two runs of a training in this process, bit for bit: `recoup.verify`."""

import dataclasses
import gc
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch.optim import Optimizer

from recoup._patching import step_marks
from recoup._patching.step_marks import StepsHaveEnded, is_due_to_the_end, silence_threads
from recoup._verify.compare import Difference
from recoup._verify.follower import Follower, Look, Outcome, Task
from recoup._verify.generators import SavedGenerators
from recoup._verify.investigation import explain
from recoup._verify.memory import filled
from recoup._verify.words import (
    difference_lines,
    ended_early_line,
    equal_line,
    is_rounding,
    name_in_words,
)
from recoup.hints import hint_keywords

_running = threading.Lock()


@dataclasses.dataclass(frozen=True)
class Verification:
    """The outcome of `recoup.verify`: true if both runs are equal."""

    is_equal: bool
    """Whether everything that was compared is equal after each step."""
    steps: int
    """Number of steps of all optimizers that were compared."""
    text: str
    """The outcome in words, as `recoup verify` prints it."""
    step: int | None = None
    """The first step that differs, from 1 on."""
    item: str = ""
    """What differs first, such as `gradient Net.block.3.weight`."""
    is_rounding: bool = False
    """Whether all its elements differ by rounding only."""
    op: str = ""
    """The op that the difference comes from, such as `aten.bernoulli_.float`; empty if unknown."""
    module: str = ""
    """The module whose code ran the op, such as Net.block.2; may be empty."""

    def __bool__(self) -> bool:
        return self.is_equal

    def __str__(self) -> str:
        return self.text


@hint_keywords()
def verify(
    reference: Callable[[], object], other: Callable[[], object], *, steps: int | None = None
) -> Verification:
    """Runs two trainings, one after the other, and compares them after each optimizer step.

    Each function makes its model and its optimizer of `torch.optim` anew, and trains; what it
    returns is not used. Both begin with the same states of the random generators, which are as
    before when `verify` returns. Compared are the tensors that `backward` was called on, buffers,
    gradients, parameters, optimizer state and random generators. At the first difference both
    functions are called again, up to the step that differs, to find the op it comes from. To end a
    function early, `optimizer.step` raises an exception that is no `Exception`.

    reference: the training whose numbers are right.
    other: the training to compare with it, such as the same with checkpoints, or in a budget.
    steps: the number of steps, of all optimizers, after which both end; None: all of them.

    Raises TypeError and ValueError for wrong arguments, ValueError if `reference` ends without a
    step of an optimizer, RuntimeError if `verify` is already running in this process, and whatever
    the functions raise.
    """
    for function in (reference, other):
        if not callable(function):
            raise TypeError(
                "recoup.verify takes two functions, each of which trains a model; got "
                f"{type(function).__name__}"
            )
    if steps is not None and steps < 1:
        raise ValueError(f"steps must be at least 1, not {steps}")
    if not _running.acquire(blocking=False):
        raise RuntimeError("recoup.verify is already running in this process")
    try:
        with tempfile.TemporaryDirectory(prefix="recoup-") as folder:
            return _Comparison(reference, other, Path(folder)).run(steps)
    finally:
        _running.release()


class _Comparison:
    """Both functions, and the files of their runs in a temporary folder."""

    def __init__(
        self, reference: Callable[[], object], other: Callable[[], object], folder: Path
    ) -> None:
        self._reference = reference
        self._other = other
        self._folder = folder
        self._generators = SavedGenerators()

    def run(self, steps: int | None) -> Verification:
        stream = self._folder / "stream"
        if not self._run(self._reference, Task(steps, stream)).steps:
            raise ValueError(
                "the reference ended without a step of an optimizer of torch.optim, so there is "
                "nothing to compare"
            )
        outcome = self._run(self._other, Task(steps, reference=stream))
        if outcome.difference is not None:
            return self._explained(outcome.steps, outcome.difference)
        if outcome.reference_ended_first or outcome.missing_steps:
            text = ended_early_line(outcome.steps, outcome.missing_steps)
            return Verification(False, outcome.steps, text)
        return Verification(True, outcome.steps, equal_line(outcome.steps, None))

    def _explained(self, steps: int, difference: Difference) -> Verification:
        repeats = (partial(self._repeat, run) for run in (self._reference, self._other))
        known = explain(difference, self._folder, *repeats)
        op = None if known.origin is None else known.origin.op
        return Verification(
            is_equal=False,
            steps=steps,
            text="\n".join(difference_lines(difference, known)),
            step=difference.step,
            item=name_in_words(difference.item),
            is_rounding=is_rounding(known),
            op="" if op is None else op.name,
            module="" if op is None else op.module,
        )

    def _repeat(self, function: Callable[[], object], look: Look) -> str | None:
        try:
            return self._run(function, Task(look=look)).looked_at
        except Exception:  # the difference is known, its origin is not
            return None

    def _run(self, function: Callable[[], object], task: Task) -> Outcome:
        """Calls the function. Its exceptions pass through, but not that which ends it early."""
        with filled(task.fill):
            return self._run_in(function, task)

    def _run_in(self, function: Callable[[], object], task: Task) -> Outcome:
        follower = Follower(task, [])

        def on_step(optimizer: Optimizer, *_: object) -> None:
            if follower.is_over or follower.on_step(optimizer):
                raise StepsHaveEnded

        self._generators.restore()
        thread_hook = silence_threads()
        if "torch._dynamo" in sys.modules:
            torch._dynamo.reset()  # the first run must not decide how code of the next is compiled
        try:
            follower.start()
            step_marks.add(follower, on_step)
            function()
        except BaseException as error:
            is_interrupt = isinstance(error, KeyboardInterrupt)
            if is_interrupt or not follower.is_over or not is_due_to_the_end(error):
                raise
        finally:
            threading.excepthook = thread_hook
            step_marks.remove(follower)
            outcome = follower.end()
            self._generators.restore()
            gc.collect()  # modules refer to themselves, and the next run is to have their memory
        return outcome
