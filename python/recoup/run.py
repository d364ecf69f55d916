"""One run inside a budget: the scope, and what there is to know about it."""

import dataclasses
import gc
import weakref
from collections import Counter
from typing import Any, Literal

import torch

from recoup import _C, gpus
from recoup._memory.device_memory import free_bytes as free_bytes
from recoup._memory.device_memory import memory_bytes as memory_bytes
from recoup._memory.device_memory import no_addresses, parse_size
from recoup._memory.device_memory import outside_bytes as outside_bytes
from recoup._memory.shares import Share, Sizing
from recoup._patching import (
    collectives,
    compiled,
    entry_points,
    higher_order,
    module_names,
    observers,
    outside,
    step_marks,
)
from recoup._reporting import suspension
from recoup._reporting.attribution import Attribution, Result
from recoup._reporting.failures import Failure, Where, failure_of, note_holders
from recoup._reporting.moments import Moment
from recoup._reporting.report import format_report, run_line
from recoup.decisions import Decision
from recoup.errors import OutOfBudgetError, add_note
from recoup.stats import Stats

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
    modules: bool = False
    """Whether it is kept for which module memory is held and time is spent."""
    stacks: bool = False
    """And the lines of the program."""
    timeline: bool = False
    """And what happens when."""
    share: Share | None = None
    """What decides each run's budget when it begins, in the place of that of the options."""


class Run:
    """One pass through a scope. What it says is current during the scope and final after it."""

    def __init__(self, setup: Setup) -> None:
        self.device = setup.device
        """The device whose memory is within the budget."""
        gpus.forget_workspaces(self.device)
        self._sizing: Sizing | None = None
        options = setup.options
        if setup.share is not None:
            self._sizing = Sizing(setup.share, self.device)
            size = {"budget_bytes": self._sizing.budget_bytes}
            options = _C.Options(**(options.as_dict() | size))
        try:
            self._engine = _C.Budget(options, str(self.device))
        except MemoryError:
            if self.device.type != "cpu":
                raise
            raise RuntimeError(no_addresses()) from None
        if setup.trace is not None:
            self._engine.record(setup.trace)
        self._options = options.as_dict()
        self._policy = str(self._options["policy"])
        knows_steps = any(row[0] == self._policy and (row[4] or row[7]) for row in _C.policies())
        spills = int(self._options["spill_bytes"]) > 0
        # On a GPU what was made outside stays there.
        self._brings_in = spills and self.device.type == "cpu"
        # With a tier steps are known under every policy: what they use next is read ahead.
        self._marks_steps = setup.trace is not None or knows_steps or spills or setup.timeline
        self._hears_steps = self._marks_steps or self._sizing is not None
        if setup.decisions:
            self._engine.log_decisions()
        self._attribution: Attribution | None = None
        if setup.modules:
            self._attribution = Attribution(
                self._engine, lines=setup.stacks, timeline=setup.timeline
            )
        # What stands for it where a reference would keep it, and its memory, alive.
        self._key = object()
        weakref.finalize(self, _forget, self._key).atexit = False
        self._graphs_before = compiled.REASONS.so_far()
        self._kept_graphs: Counter[str] | None = None  # of a scope that is over
        # As the body left it: when the scope is over nothing is pinned any more.
        self._pinned: list[dict[str, Any]] = []
        self._failures: list[Failure] = []

    def __repr__(self) -> str:
        return run_line(self.stats(), suspension.state_of(self._engine, was_left=self._was_left))

    def stats(self) -> Stats:
        """What the engine has done so far. May be called from any thread."""
        return Stats.from_engine(self._engine.stats())

    def pinned(self) -> list[dict[str, Any]]:
        """What cannot be evicted and why, largest first: rows with keys `bytes`, `by` and `op`.

        After the scope: what could not be evicted at its end. Where modules are known, rows have
        keys `module`, `kind` (as in `holders`) and `name` too.
        """
        rows = self._engine.pinned() if self._is_open else self._pinned
        if self._attribution:
            return list(map(self._result().pinned_row, rows))
        return [{key: row[key] for key in ("bytes", "by", "op")} for row in rows]

    def holders(self, *, each: bool = False) -> list[dict[str, Any]]:
        """Who held the memory when most was charged; needs `recoup.budget(modules=True)`.

        Rows of a module and a kind, largest first, with keys `module` (its qualified name; empty:
        outside of all), `kind` ('parameters', 'buffers', 'gradients', 'optimizer', 'activations',
        'inputs', 'workspace' or 'other'), `bytes` and `values`. All rows together are the peak.
        each: a row for each op and name too, with keys `op`, `name` and, where it is kept, `line`.
        Raises RuntimeError where that was not kept.
        """
        return self._result().holders(each=each)

    def work(self) -> list[dict[str, Any]]:
        """What was done for each module, longest first; needs `recoup.budget(modules=True)`.

        Rows with keys `module`, `ops`, `op_ns`, `replays`, `replay_ns`, `evictions` and
        `evicted_bytes`. An op of backward is of the module of its forward op. Raises as `holders`.
        """
        return self._result().work()

    def timeline(self) -> list[Moment]:
        """What happened when, in nanoseconds since the scope began; `recoup.budget(timeline=True)`.

        Of very long runs the last million. Raises RuntimeError where that was not kept.
        """
        self._require_timeline()
        return self._result().timeline()

    def attribution(self) -> Result | None:
        """All that is known of modules, for who makes pages; None: nothing was kept."""
        return self._result() if self._attribution else None

    def failures(self) -> list[Failure]:
        """What ended the body of the scope, and what its exit raised; empty: it went well."""
        return list(self._failures)

    def settings(self) -> dict[str, Any]:
        """The options that are in force, and the device."""
        return {"device": str(self.device), **self._options}

    def page(self) -> str:
        """The run as an HTML page that needs nothing else; best with `timeline=True`."""
        from recoup._reporting.page_data import page_data
        from recoup.page import render

        return render(page_data(self))

    def _repr_html_(self) -> str:
        from recoup._reporting.page_data import page_data
        from recoup.page import render_fragment

        return render_fragment(page_data(self))

    def _result(self) -> Result:
        if self._attribution is None:
            raise RuntimeError(
                "this run has not recorded modules: recoup.budget(..., modules=True) records them"
            )
        if self._is_open:
            self._attribution.name_all()
        return self._attribution.result()

    def _require_timeline(self) -> None:
        if self._attribution is None or not self._attribution.timeline:
            raise RuntimeError(
                "this run has not recorded a timeline: recoup.budget(..., timeline=True) records it"
            )

    def copy_waits(self) -> list[dict[str, Any]]:
        """For which ops the program waited for copies to and from the spill tier.

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
        if self._sizing is not None:
            self._sizing.after_step(self._engine)

    def _end_optimizer_step(self, *_: object) -> None:
        if self._marks_steps:
            self._engine.mark_step("optimizer step")
        if self._sizing is not None:
            self._sizing.after_step(self._engine)

    def report(self) -> str:
        """The run as text: peak, work, time by kind, and what is pinned and by whom.

        With a spill tier: for which ops copies were waited for, too.
        """
        return format_report(
            self.stats(),
            self.pinned(),
            policy=self._policy,
            copy_waits=self.copy_waits(),
            kept_graphs=self.kept_graphs(),
            holders=self.holders() if self._attribution else (),
            modules=self.work() if self._attribution else (),
        )

    def check(self) -> None:
        """Recomputes the engine's metadata from scratch; raises when it is wrong. For tests."""
        self._engine.check()

    def resume(self, budget: int | str) -> None:
        """Completes an exit that failed, in a budget of at least the size of the scope's.

        budget: bytes, or a size such as "2GiB"; larger than before when memory was refused.
        Raises OutOfBudgetError when this budget is too small as well (then call it again),
        ValueError as `recoup.budget` does, RuntimeError when the scope is not suspended, and the
        error that made the exit fail if its cause is still there.
        """
        suspension.require_suspended(self._engine, was_left=self._was_left)
        try:
            if (size := self._parse(budget)) != self._engine.stats()["budget_bytes"]:
                self._engine.grow(size)
            self._leave()
        except BaseException:
            self._end()
            raise
        self._note_failure(None, "exit")

    def set_budget(self, budget: int | str) -> None:
        """Changes the budget of the open scope.

        budget: bytes, or a size such as "2GiB". In a larger budget an evicted tensor comes back
        when it is used next. A smaller budget evicts at once until what is charged fits.
        Raises OutOfBudgetError when the tensors that cannot be evicted do not fit, and then
        changes nothing; ValueError as `recoup.budget` does; RuntimeError when the scope is not
        open.
        """
        suspension.require_open(self._engine, was_left=self._was_left)
        size = self._parse(budget)
        now = self._engine.stats()["budget_bytes"]
        if size > now:
            self._engine.grow(size)
        elif size < now:
            self._engine.shrink(size)

    @property
    def _was_left(self) -> bool:
        return self._kept_graphs is not None

    @property
    def _is_open(self) -> bool:
        """Entered and not left, or suspended."""
        return self._engine.entered() or self._engine.suspended()

    def _parse(self, budget: int | str) -> int:
        return parse_size(budget, self.device)

    # What follows may be interrupted between any two instructions. So what is so far is asked of
    # the engine, whose calls are whole, and each part may be done again: see scope_module.cpp.

    def _enter(self) -> None:
        self._engine.enter()
        if self._hears_steps:
            step_marks.add(self._key, self._end_optimizer_step)
        for patches in _PATCHES:
            patches.install(self._key)
        observers.enter(self._key)
        if self._attribution:
            self._attribution.enter(self._key)
        if self._brings_in:
            outside.offer(self._engine)
        if self._sizing is not None:
            self._sizing.enter()

    def _exit(self, error: BaseException | None) -> None:
        """At the end of a `with`; `error` is what its body raised."""
        if error is not None:
            self._note_failure(error, "body")
        try:
            self._leave()
        except BaseException as leaving:
            self._note_failure(leaving, "exit")
            if error is None or isinstance(error, GeneratorExit):  # that one nobody sees
                raise
            if not isinstance(leaving, Exception):
                raise
            if isinstance(error, OutOfBudgetError) and isinstance(leaving, OutOfBudgetError):
                error.run = self  # as the note says
            add_note(error, suspension.of_two_errors(leaving))

    def _note_failure(self, error: BaseException | None, where: Where) -> None:
        self._failures = [each for each in self._failures if each.where != where]
        if error is not None and (failure := failure_of(error, where, self._attribution)):
            self._failures.append(failure)
            note_holders(error, failure)

    def _leave(self) -> None:
        gpus.forget_workspaces(self.device)
        self._release()
        self._last_look()
        try:
            self._leave_engine()
        except OutOfBudgetError as error:
            self._clean_up()
            error.run = self
            add_note(error, suspension.of_no_room(error))
            raise
        except Exception as failure:
            self._clean_up()
            if self._engine.suspended():
                add_note(failure, suspension.OF_A_FAILURE)
            raise
        self._clean_up()

    def _abandon(self) -> None:
        """Ends the scope as it is: nothing is brought back, for nobody will look at it."""
        gpus.forget_workspaces(self.device)
        self._release()
        self._last_look()
        self._engine.abandon()
        self._clean_up()
        self._note_failure(None, "exit")

    def _last_look(self) -> None:
        if self._attribution:
            self._attribution.name_all()
        self._pinned = self._engine.pinned()

    def _release(self) -> None:
        if self._sizing is not None:
            self._sizing.leave()

    def _leave_engine(self) -> None:
        try:
            self._engine.leave()
        except OutOfBudgetError:
            if gc.collect() == 0:
                raise
        else:
            return
        self._engine.leave()  # without the tensors that only cycles held

    def _end(self) -> None:
        """Whatever was interrupted: the scope is over or suspended then, and PyTorch as it was."""
        try:
            if self._engine.entered():
                self._release()
                self._pinned = self._engine.pinned()
                self._engine.leave()
        except Exception:  # of an exit that does not fit; who interrupts us has to know nothing
            pass
        for patches in (*_PATCHES, module_names.PATCHES):
            patches.unlock()
        self._clean_up()

    def _clean_up(self) -> None:
        if self._engine.entered():
            return
        step_marks.remove(self._key)
        observers.leave(self._key)
        if self._attribution:
            self._attribution.leave(self._key)
        self._kept_graphs = compiled.kept_since(self._graphs_before)
        # Of an evicted storage some unwrapped entry points would end the process.
        if not self._engine.suspended():
            for patches in reversed(_PATCHES):
                patches.remove(self._key)


_PATCHES = (
    entry_points.PATCHES,
    higher_order.PATCHES,
    observers.PATCHES,
    compiled.PATCHES,
    collectives.PATCHES,
    collectives.LATE_PATCHES,
)


def _forget(key: object) -> None:
    """A suspended run was given up."""
    for patches in reversed((*_PATCHES, module_names.PATCHES)):
        patches.forget(key)
