"""One run inside a budget: the scope, and what there is to know about it."""

import dataclasses
import functools
import gc
import inspect
import weakref
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

import torch

from recoup import _C, compiled, entry_points, gpus, higher_order, observers, outside, step_marks
from recoup.decisions import Decision
from recoup.errors import OutOfBudgetError, add_note
from recoup.report import format_report
from recoup.sizes import parse_bytes
from recoup.stats import Stats

_P = ParamSpec("_P")
_T = TypeVar("_T")

ReplayOrder = Literal["memory", "recursive"]
CostModel = Literal["measured", "bytes"]
InPlace = Literal["share", "copy"]
Planning = Literal["off", "wait", "background"]
Placement = Literal["best-fit", "two-ended"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setup:
    """What each run of a scope is made with."""

    options: _C.Options
    device: torch.device
    trace: str | None = None
    """The file to record to."""
    decisions: bool = False
    """Whether they are kept."""


def memory_bytes(device: torch.device) -> int:
    """Of the device, all of it."""
    if device.type == "cpu":
        return _C.physical_memory_bytes()
    return _C.gpu_memory(device.index)["total_bytes"]


def free_bytes(device: torch.device) -> int:
    """What a budget on the device can be: on the CPU, all of its memory."""
    if device.type == "cpu":
        return _C.physical_memory_bytes()
    memory = _C.gpu_memory(device.index)
    return memory["free_bytes"] + memory["outside_bytes"]


def outside_bytes(device: torch.device) -> int:
    """Of a budget on the device, what is taken before its scope begins.

    On the CPU 0: a budget there is charged for what it comes to see.
    """
    if device.type == "cpu":
        return 0
    gpus.forget_workspaces(device)
    gpus.empty_cache(device)
    return _C.gpu_memory(device.index)["outside_bytes"]


class Run:
    """One pass through a scope. What it says is current during the scope and final after it."""

    def __init__(self, setup: Setup) -> None:
        self.device = setup.device
        """The device whose memory is within the budget."""
        gpus.forget_workspaces(self.device)
        self._engine = _C.Engine(setup.options, str(self.device))
        if setup.trace is not None:
            self._engine.record(setup.trace)
        self._policy = str(setup.options.as_dict()["policy"])
        knows_steps = any(row[0] == self._policy and (row[4] or row[7]) for row in _C.policies())
        spills = int(setup.options.as_dict()["spill_bytes"]) > 0
        # On a GPU what was made outside stays there.
        self._brings_in = spills and self.device.type == "cpu"
        # With a tier steps are known under every policy: what they use next is read ahead.
        self._marks_steps = setup.trace is not None or knows_steps or spills
        if setup.decisions:
            self._engine.log_decisions()
        # What stands for it where a reference would keep it, and its memory, alive.
        self._key = object()
        weakref.finalize(self, _forget, self._key).atexit = False
        self._graphs_before = compiled.REASONS.so_far()
        self._kept_graphs: Counter[str] | None = None  # of a scope that is over
        # As the body left it: when the scope is over nothing is pinned any more.
        self._pinned: list[dict[str, Any]] = []

    def stats(self) -> Stats:
        """What the engine has done so far. May be called from any thread."""
        return Stats.from_engine(self._engine.stats())

    def pinned(self) -> list[dict[str, Any]]:
        """What cannot be evicted and why, largest first: rows with keys `bytes`, `by` and `op`.

        After the scope: what could not be evicted at its end.
        """
        return self._engine.pinned() if self._is_open else self._pinned

    def copy_waits(self) -> list[dict[str, Any]]:
        """For which ops the program waited for copies to and from the second tier.

        Rows with keys `op` (empty: between ops, as at the end of the scope), `spill_ns` and
        `fetch_ns`, longest first. After the scope: its end counts too.
        """
        rows = self._engine.copy_waits()
        return sorted(rows, key=lambda row: -(row["spill_ns"] + row["fetch_ns"]))

    def kept_graphs(self) -> list[tuple[str, int]]:
        """Why calls of compiled graphs could not be run again, so that what they made stayed.

        Rows of a reason and how many calls it was of, most first; of all scopes that were open
        meanwhile.
        """
        return (self._kept_graphs or compiled.kept_since(self._graphs_before)).most_common()

    def decisions(self) -> list[Decision]:
        """What the engine decided, in order; empty unless `recoup.budget(decisions=True)`."""
        return Decision.rows(self._engine.decisions())

    def mark_step(self, name: str = "step") -> None:
        """Says that a training step ends here; every step of an optimizer says so by itself.

        For the trace, if one is recorded, and for a policy that knows steps; otherwise it does
        nothing.
        """
        self._engine.mark_step(name)

    def _mark_optimizer_step(self, *_: object) -> None:
        self._engine.mark_step("optimizer step")

    def report(self) -> str:
        """The run as text: peak, work, time by kind, and what is pinned and by whom.

        With a second tier: for which ops copies were waited for, too.
        """
        return format_report(
            self.stats(),
            self.pinned(),
            policy=self._policy,
            copy_waits=self.copy_waits(),
            kept_graphs=self.kept_graphs(),
        )

    def check(self) -> None:
        """Recomputes the engine's books from scratch; raises when they are wrong. For tests."""
        self._engine.check()

    def finish(self, budget: int | str) -> None:
        """Completes an exit that failed: of OutOfBudgetError in a larger budget, else in the same.

        Raises OutOfBudgetError when that is too small as well (then call again), ValueError as
        `recoup.budget` does, RuntimeError when the scope is not waiting for it; and what kept the
        exit from its end, if that is still so.
        """
        if self._engine.entered():
            raise RuntimeError(
                "finish() completes an exit that failed; this scope is open: run.grow(budget) "
                "gives it more memory"
            )
        if not self._engine.suspended():
            raise RuntimeError("finish() completes an exit that failed; this scope is over")
        try:
            if (size := self._parse(budget)) != self._engine.stats()["budget_bytes"]:
                self._engine.grow(size)
            self._leave()
        except BaseException:
            self._settle()
            raise

    def grow(self, budget: int | str) -> None:
        """Gives the open scope a larger budget; what was evicted comes back when it is used.

        Raises ValueError when it is not larger, and as `recoup.budget` does; RuntimeError when the
        scope is not open.
        """
        self._require_open("grow")
        self._engine.grow(self._parse(budget))

    def shrink(self, budget: int | str) -> None:
        """Gives the open scope a smaller budget, evicting what is too much for it.

        Raises OutOfBudgetError when what cannot be evicted is more than that, and changes nothing
        then; ValueError when it is not smaller, and as `recoup.budget` does; RuntimeError when the
        scope is not open.
        """
        self._require_open("shrink")
        self._engine.shrink(self._parse(budget))

    @property
    def _is_open(self) -> bool:
        """Entered and not left, or suspended."""
        return self._engine.entered() or self._engine.suspended()

    def _parse(self, budget: int | str) -> int:
        return parse_bytes(budget, limit_bytes=memory_bytes(self.device))

    def _require_open(self, name: str) -> None:
        if self._engine.suspended():
            raise RuntimeError(
                f"{name}() changes the budget of an open scope; this one is suspended: "
                "run.finish(budget) completes its exit"
            )
        if not self._engine.entered():
            raise RuntimeError(f"{name}() changes the budget of an open scope; this one is not")

    # What follows may be interrupted between any two instructions. So what is so far is asked of
    # the engine, whose calls are whole, and each part may be done again: see scope_module.cpp.

    def _enter(self) -> None:
        self._engine.enter()
        if self._marks_steps:
            step_marks.add(self._key, self._mark_optimizer_step)
        for patches in _PATCHES:
            patches.install(self._key)
        observers.enter(self._key)
        if self._brings_in:
            outside.offer(self._engine)

    def _exit(self, error: BaseException | None) -> None:
        """At the end of a `with`; `error` is what its body raised."""
        try:
            self._leave()
        except Exception as leaving:
            if error is None or isinstance(error, GeneratorExit):  # that one nobody sees
                raise
            notes = " ".join(getattr(leaving, "__notes__", []))
            add_note(error, f"recoup: leaving the scope failed too: {leaving} {notes}".rstrip())

    def _leave(self) -> None:
        gpus.forget_workspaces(self.device)
        self._pinned = self._engine.pinned()
        try:
            self._leave_engine()
        except OutOfBudgetError as error:
            self._clean_up()
            error.run = self
            add_note(
                error,
                "The scope is suspended. What is evicted raises when it is touched, until "
                f"run.finish(budget) brings it back; {error.enough_bytes} bytes would do. Nothing "
                "is lost while the run is kept: it is what `with` gives `as run`, and `run` of the "
                "OutOfBudgetError. " + _ways_out(error.least_bytes - error.budget_bytes),
            )
            raise
        except Exception as failure:
            self._clean_up()
            if self._engine.suspended():
                add_note(
                    failure,
                    "The scope is suspended. What could be had is there; what is evicted or "
                    "spilled raises when it is touched, until run.finish(budget), with the same "
                    "budget or a larger one, brings it back. `del` what is lost before.",
                )
            raise
        self._clean_up()

    def _abandon(self) -> None:
        """Ends the scope as it is: nothing is brought back, for nobody will look at it."""
        gpus.forget_workspaces(self.device)
        self._pinned = self._engine.pinned()
        self._engine.abandon()
        self._clean_up()

    def _leave_engine(self) -> None:
        try:
            self._engine.leave()
        except OutOfBudgetError:
            if gc.collect() == 0:
                raise
        else:
            return
        self._engine.leave()  # without the tensors that only cycles held

    def _settle(self) -> None:
        """Whatever was interrupted: the scope is over or suspended then, and PyTorch as it was."""
        try:
            if self._engine.entered():
                self._pinned = self._engine.pinned()
                self._engine.leave()
        except Exception:  # of an exit that does not fit; who interrupts us has to know nothing
            pass
        for patches in _PATCHES:
            patches.unlock()
        self._clean_up()

    def _clean_up(self) -> None:
        if self._engine.entered():
            return
        step_marks.remove(self._key)
        observers.leave(self._key)
        self._kept_graphs = compiled.kept_since(self._graphs_before)
        # Of an evicted storage some unwrapped entry points would end the process.
        if not self._engine.suspended():
            for patches in reversed(_PATCHES):
                patches.remove(self._key)


_PATCHES = (entry_points.PATCHES, higher_order.PATCHES, observers.PATCHES, compiled.PATCHES)


def _forget(key: object) -> None:
    """A suspended run was given up."""
    for patches in reversed(_PATCHES):
        patches.forget(key)


def _ways_out(missing_bytes: int) -> str:
    much = f"at least {missing_bytes} bytes" if missing_bytes > 0 else "tensors"
    return (
        f"A way out without a larger budget is to let go of {much} before the scope ends: `del` "
        "results that are not needed behind it (a loss that was not `detach`ed, or outputs, keep "
        "all activations that their backward would need), copy to files what is only to be stored, "
        "or set gradients to None."
    )


class Budget:
    """What `recoup.budget` returns: a scope for `with`, or a decorator. Each use is a new run."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self._runs: list[Run] = []

    def _make_run(self) -> Run:
        return Run(self.setup)

    if TYPE_CHECKING:

        def __enter__(self) -> Run: ...
        def __exit__(
            self,
            kind: type[BaseException] | None,
            error: BaseException | None,
            traceback: TracebackType | None,
        ) -> None: ...
    else:  # in C++, where no interrupt comes: see scope_module.cpp
        __enter__ = _C.method(_C.enter_scope)
        __exit__ = _C.method(_C.exit_scope)

    def __call__(self, function: Callable[_P, _T]) -> Callable[_P, _T]:
        """`function` with the scope around each call.

        Raises TypeError for coroutines and generators, whose bodies do not run in the call.
        """
        if (
            inspect.iscoroutinefunction(function)
            or inspect.isgeneratorfunction(function)
            or inspect.isasyncgenfunction(function)
        ):
            raise TypeError(
                "recoup.budget decorates plain functions; inside a coroutine or a generator "
                "write `with recoup.budget(...):`"
            )

        @functools.wraps(function)
        def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            with Budget(self.setup):
                return function(*args, **kwargs)

        return wrapper
