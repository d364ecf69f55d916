"""One run inside a budget: its scope, and its statistics and reports."""

import gc
import os
import weakref
from collections import Counter
from pathlib import Path
from typing import Any

from recoup import _C, gpus
from recoup._memory.device_memory import free_bytes as free_bytes
from recoup._memory.device_memory import no_addresses, parse_size
from recoup._memory.sizes import format_bytes
from recoup._memory.sizing import Sizing
from recoup._patching import (
    collectives,
    compiled,
    entry_points,
    graphs,
    higher_order,
    module_names,
    observers,
    outside,
    step_marks,
    threads,
)
from recoup._reporting import suspension
from recoup._reporting.attribution import Attribution, Result
from recoup._reporting.failures import Failure, Where, failure_of, note_holders
from recoup._reporting.files import write_atomically
from recoup._reporting.moments import Moment, chrome_json
from recoup._reporting.report import format_memory, format_report, run_line
from recoup.adjusting import changes_of, make_adjuster, set_budget, shared_budget, stats_of
from recoup.decisions import Decision
from recoup.errors import OutOfBudgetError, add_note
from recoup.known_names import core_policies
from recoup.paged import PagedResults, paged_results
from recoup.rows import (
    BudgetChange,
    CopyWait,
    Holder,
    KeptGraphs,
    ModuleWork,
    PinnedValue,
    why_pinned,
)
from recoup.rules import ModuleRules
from recoup.setup import Setup
from recoup.shared import SharedBudget
from recoup.stats import Stats


class Run:
    """One pass through a scope. Results are current while the scope is open, and final after it."""

    def __init__(self, setup: Setup) -> None:
        self.device = setup.device
        """The device whose memory the budget limits."""
        gpus.forget_workspaces(self.device)
        self._sizing: Sizing | None = None
        options = setup.options
        if setup.fraction is not None:
            self._sizing = Sizing(setup.fraction, self.device)
            size = {"budget_bytes": self._sizing.budget_bytes}
            options = _C.Options(**(options.as_dict() | size))
        try:
            self._engine = _C.Engine(options, str(self.device))
        except MemoryError:
            if self.device.type != "cpu":
                raise
            raise RuntimeError(no_addresses()) from None
        self._adjuster = make_adjuster(setup, self._engine, options.as_dict()["budget_bytes"])
        if setup.trace is not None:
            self._engine.record(setup.trace)
        self._options = options.as_dict()
        self._policy = str(self._options["policy"])
        policy = core_policies()[self._policy]
        knows_steps = policy.schedule or policy.foresees
        spills = int(self._options["spill_bytes"]) > 0
        self._brings_in = spills
        # With a spill tier every policy needs steps: values of the next step are read ahead.
        self._marks_steps = setup.trace is not None or knows_steps or spills or setup.timeline
        self._follows_steps = self._marks_steps or self._sizing is not None
        self._steps = 0
        if setup.decisions:
            self._engine.log_decisions()
        self._attribution: Attribution | None = None
        if setup.modules:
            self._attribution = Attribution(
                self._engine, lines=setup.lines, timeline=setup.timeline
            )
        self._rules = None if setup.rules is None else ModuleRules(setup.rules, self._engine)
        # Stands for the run where a reference would keep it, and its tensors, alive.
        self._key = object()
        weakref.finalize(self, _forget, self._key).atexit = False
        self._graphs_before = compiled.REASONS.so_far()
        self._kept_graphs: Counter[str] | None = None  # set when the scope has ended
        # The pinned values at the end of the body: when the scope has ended nothing is pinned.
        self._pinned: list[dict[str, Any]] = []
        self._failures: list[Failure] = []

    def __repr__(self) -> str:
        return run_line(self.stats(), suspension.state_of(self._engine, was_left=self._was_left))

    def stats(self) -> Stats:
        """The engine's counters and gauges at this moment. May be called from any thread."""
        return stats_of(self._adjuster, self._engine)

    def pinned(self) -> list[PinnedValue]:
        """Values that cannot be evicted, largest first; after the scope those of its end."""
        rows = self._engine.pinned() if self._is_open else self._pinned
        if self._attribution:
            return list(map(self._result().pinned_row, rows))
        keys = ("bytes", "by", "op")
        return [PinnedValue(**{key: row[key] for key in keys}, why=why_pinned(row)) for row in rows]

    def holders(self, *, each: bool = False) -> list[Holder]:
        """Memory charged at the peak, by module and kind; needs `recoup.budget(profile="modules")`.

        The largest row is first. The bytes of the rows add up to `Stats.peak_bytes`.
        each: also separate rows by op, name and line.

        Raises RuntimeError if modules were not recorded.
        """
        return self._result().holders(each=each)

    def work(self) -> list[ModuleWork]:
        """Work done for each module, longest first; needs `recoup.budget(profile="modules")`.

        Raises RuntimeError if modules were not recorded.
        """
        return self._result().work()

    def timeline(self) -> list[Moment]:
        """The run's events in order, with times in nanoseconds since the scope began.

        Needs `recoup.budget(profile="timeline")`; raises RuntimeError without it. A very long run
        keeps its last million events.
        """
        self._require_timeline()
        return self._result().timeline()

    def attribution(self) -> Result | None:
        """The attribution so far, for pages about the run; None if modules were not recorded."""
        return self._result() if self._attribution else None

    def failures(self) -> list[Failure]:
        """The errors that ended the scope's body and that its exit raised; empty if none."""
        return list(self._failures)

    def settings(self) -> dict[str, Any]:
        """The device, and the options of the engine by name."""
        return {"device": str(self.device), **self._options}

    def page(self) -> str:
        """The run as a self-contained HTML page; most complete with `profile="timeline"`."""
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
                "this run did not record modules: open the scope with recoup.budget(..., "
                "profile='modules')"
            )
        if self._is_open:
            self._attribution.name_all()
        return self._attribution.result()

    def _require_timeline(self) -> None:
        if self._attribution is None or not self._attribution.timeline:
            raise RuntimeError(
                "this run did not record a timeline: open the scope with recoup.budget(..., "
                "profile='timeline')"
            )

    def copy_waits(self) -> list[CopyWait]:
        """Ops for which the program waited for copies to and from the spill tier, longest first.

        After the scope the waits of its end are included.
        """
        rows = [CopyWait(**row) for row in self._engine.copy_waits()]
        return sorted(rows, key=lambda row: -(row.spill_ns + row.fetch_ns))

    def kept_graphs(self) -> list[KeptGraphs]:
        """Reasons why calls of compiled graphs could not be replayed, most calls first.

        Calls of other scopes that were open at the same time are included.
        """
        kept = self._kept_graphs or compiled.kept_since(self._graphs_before)
        return [KeptGraphs(reason=reason, calls=calls) for reason, calls in kept.most_common()]

    def budget_changes(self) -> list[BudgetChange]:
        """Changes of the budget by `recoup.budget(adapt=True)`, in order."""
        return changes_of(self._adjuster)

    def shared_budget(self) -> SharedBudget | None:
        """The budget of all processes that share one; None without `recoup.budget(share=...)`."""
        return shared_budget(self._adjuster, self._engine)

    def paged_results(self) -> PagedResults | None:
        """Use of `Options(page_window=...)`; None if every result fitted in the budget."""
        return paged_results(self._engine)

    def decisions(self) -> list[Decision]:
        """The engine's decisions in order; empty unless `recoup.budget(profile="decisions")`."""
        return Decision.rows(self._engine.decisions())

    def mark_step(self, name: str = "step") -> None:
        """Marks the end of a training step; steps of an optimizer are marked without it.

        The mark is used by a trace that is being recorded, by a policy that knows steps, by the
        spill tier, by a timeline and by the budget "auto"; otherwise it has no effect.
        """
        self._engine.mark_step(name)
        self._after_step()

    def _end_optimizer_step(self, *_: object) -> None:
        if self._marks_steps:
            self._engine.mark_step("optimizer step")
        self._after_step()

    def _after_step(self) -> None:
        self._steps += 1
        if self._sizing is not None and self._adjuster is None:
            self._sizing.after_step(self._engine)

    def non_tensor_peak_bytes(self) -> int:
        """Bytes of `Stats.peak_bytes` that no tensor has.

        With the budget "auto" the growth of the process's other memory beyond the reserve for it;
        with other budgets 0.
        """
        return 0 if self._sizing is None else self._sizing.held_at_peak(self._engine)

    def report(self) -> str:
        """The run as text: peak, work, time by kind, and which values cannot be evicted, and why.

        With a spill tier: also the ops that waited for copies. With `profile="modules"`: also
        memory and time by module.
        """
        return format_report(
            self.stats(),
            self.pinned(),
            policy=self._policy,
            steps=self._steps,
            copy_waits=self.copy_waits(),
            kept_graphs=self.kept_graphs(),
            budget_changes=self.budget_changes(),
            shared=self.shared_budget(),
            paged=self.paged_results(),
            non_tensor_bytes=self.non_tensor_peak_bytes(),
            holders=self.holders() if self._attribution else (),
            modules=self.work() if self._attribution else (),
        )

    def memory_summary(self) -> str:
        """The memory of the run as text: its peak, what is charged now, and what cannot be evicted.

        As `torch.cuda.memory_summary` for a device.
        """
        return format_memory(self.stats(), self.pinned(), policy=self._policy)

    def reset_peak_stats(self) -> None:
        """Starts a new peak: `Stats.peak_bytes` and `Run.holders` count from what is charged now.

        As `torch.cuda.reset_peak_memory_stats` for a device. Raises RuntimeError when the scope is
        not open.
        """
        suspension.require_open(self._engine, "reset_peak_stats", was_left=self._was_left)
        self._engine.reset_peak()
        if self._sizing is not None:
            self._sizing.forget_peak()

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes the timeline for Perfetto and chrome://tracing; needs `profile="timeline"`.

        As the method of `torch.profiler.profile`. The file is complete or absent. Raises
        RuntimeError when no timeline was recorded, OSError when the file cannot be written.
        """
        text = chrome_json(self.timeline(), self.stats().budget_bytes)
        write_atomically(Path(path), text)

    def check(self) -> None:
        """Recomputes the engine's metadata from scratch; raises if it is wrong. For tests."""
        self._engine.check()

    def resume(self, budget: int | str) -> None:
        """Completes a scope exit that failed, in a budget of at least the scope's.

        budget: bytes, or text such as "2GiB"; must be larger than before if the exit ran out of
            budget.

        Raises OutOfBudgetError if this budget is too small as well (call it again with a larger
        one), ValueError or TypeError as `recoup.budget`, RuntimeError if the scope is not
        suspended, and the exit's original error if its cause remains.
        """
        suspension.require_suspended(self._engine, was_left=self._was_left)
        try:
            size = parse_size(budget, self.device)
            if size < (least := self._engine.stats()["budget_bytes"]):
                raise ValueError(
                    f"run.resume needs at least the scope's budget, {format_bytes(least)}"
                )
            self._engine.set_budget(size)
            self._leave()
        except BaseException:
            self._end()
            raise
        self._note_failure(None, "exit")

    def set_budget(self, budget: int | str) -> None:
        """Changes the budget of the open scope.

        budget: bytes, or text such as "2GiB". A larger budget restores nothing at once: an evicted
            tensor is restored when it is used next. A smaller budget evicts at once until the
            charged bytes fit.

        Raises OutOfBudgetError, without a change, if the tensors that cannot be evicted do not fit,
        ValueError or TypeError as `recoup.budget`, ValueError if the budget is shared, and
        RuntimeError if the scope is not open.
        """
        suspension.require_open(self._engine, "set_budget", was_left=self._was_left)
        set_budget(self._adjuster, self._engine, parse_size(budget, self.device))

    @property
    def _was_left(self) -> bool:
        return self._kept_graphs is not None

    @property
    def _is_open(self) -> bool:
        """Whether the scope is entered and not left, or suspended."""
        return self._engine.entered() or self._engine.suspended()

    # An interrupt can end the methods below between any two instructions. So they ask the engine,
    # whose calls are atomic, for the current state, and each part is idempotent: see
    # scope_module.cpp.

    def _enter(self) -> None:
        self._engine.enter()
        if self._follows_steps:
            step_marks.add(self._key, self._end_optimizer_step)
        for patches in _PATCHES:
            patches.install(self._key)
        observers.enter(self._key)
        if self._attribution:
            self._attribution.enter(self._key)
        if self._rules:
            self._rules.enter()
        if self._adjuster is not None:
            self._adjuster.start()  # a thread that starts later would withdraw the offers
        if self._brings_in:
            outside.offer(self._engine, self.device)
        if self._sizing is not None:
            self._sizing.enter()
        if self._adjuster is not None:
            self._adjuster.begin()

    def _exit(self, error: BaseException | None) -> None:
        """Ends a `with` block; `error` is the exception that its body raised."""
        if error is not None:
            self._note_failure(error, "body")
        try:
            self._leave()
        except BaseException as leaving:
            self._note_failure(leaving, "exit")
            if error is None or isinstance(error, GeneratorExit):  # a GeneratorExit is not shown
                raise
            if not isinstance(leaving, Exception):
                raise
            if isinstance(error, OutOfBudgetError) and isinstance(leaving, OutOfBudgetError):
                error.run = self  # the note refers to it
            add_note(error, suspension.of_two_errors(leaving))

    def _note_failure(self, error: BaseException | None, where: Where) -> None:
        self._failures = [each for each in self._failures if each.where != where]
        if error is not None and (
            failure := failure_of(error, where, self._attribution, self.pinned)
        ):
            self._failures.append(failure)
            note_holders(error, failure)

    def _leave(self) -> None:
        gpus.forget_workspaces(self.device)
        self._release()
        self._last_look()
        if self._adjuster is not None and self._engine.entered():
            self._adjuster.widen()
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
        """Ends the scope without restoring evicted tensors, because no code will read them."""
        gpus.forget_workspaces(self.device)
        self._release()
        self._last_look()
        self._engine.abandon()
        self._clean_up()
        self._note_failure(None, "exit")

    def _last_look(self) -> None:
        if self._rules:
            self._rules.warn_unmatched()
        if self._attribution:
            self._attribution.name_all()
        self._pinned = self._engine.pinned()

    def _release(self) -> None:
        if self._adjuster is not None:
            self._adjuster.stop()
        if self._sizing is not None:
            self._sizing.leave(self._engine)

    def _leave_engine(self) -> None:
        try:
            self._engine.leave()
        except OutOfBudgetError:
            if gc.collect() == 0:
                raise
        else:
            return
        self._engine.leave()  # the collector has freed tensors that only cycles held

    def _end(self) -> None:
        """Ends or suspends the scope after an interrupt, and restores PyTorch's attributes."""
        try:
            if self._engine.entered():
                self._release()
                self._pinned = self._engine.pinned()
                self._engine.leave()
        except Exception:  # the exit does not fit; the interrupt is reported, not this error
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
        if self._rules:
            self._rules.leave()
        self._kept_graphs = compiled.kept_since(self._graphs_before)
        # On an evicted storage some entry points without wrappers would end the process.
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
    graphs.PATCHES,
    threads.PATCHES,
)


def _forget(key: object) -> None:
    """Removes the patches of a suspended run that was collected."""
    for patches in reversed((*_PATCHES, module_names.PATCHES)):
        patches.forget(key)
