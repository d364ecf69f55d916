"""One run inside a budget: the scope, and what there is to know about it."""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal, ParamSpec, TypeVar

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.hooks import RemovableHandle

from recoup import _C, entry_points, gpus, higher_order
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
Placement = Literal["best-fit", "two-ended"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """The arguments of `recoup.budget`, checked, under the names that `_C.Options` has for them."""

    budget_bytes: int
    policy: str
    small_filter: bool | None
    sampling: bool | None
    kinetic: bool | None
    seed: int
    usefulness: bool
    replay_order: str
    max_replay_ratio: float
    block_size_bytes: int
    small_leaf_bytes: int
    address_bytes: int
    max_depth: int
    verify: bool
    evict_after_op: bool
    cost_model: str
    inplace: str
    placement: str
    move_ns_per_byte: float | None

    def __post_init__(self) -> None:
        """Raises ValueError that says what is allowed."""
        _check_choice("policy", self.policy, [row[0] for row in _C.policies() if not row[5]])
        if self.kinetic:
            with_order = [row[0] for row in _C.policies() if row[6]]
            if self.policy not in with_order:
                raise ValueError(
                    f"kinetic needs a policy that has an order of candidates: "
                    f"{', '.join(with_order)}; got {self.policy!r}"
                )
        _check_choice("replay_order", self.replay_order, ["memory", "recursive"])
        _check_choice("cost_model", self.cost_model, ["measured", "bytes"])
        _check_choice("inplace", self.inplace, ["share", "copy"])
        _check_choice("placement", self.placement, ["best-fit", "two-ended"])
        if not 0 <= self.seed < 2**64:
            raise ValueError(f"seed must be from 0 to 2**64 - 1; got {self.seed}")
        if self.small_leaf_bytes < 0:
            raise ValueError(f"small_leaf_bytes must be 0 or more; got {self.small_leaf_bytes}")
        if not 1 <= self.max_depth < 2**31:
            raise ValueError(f"max_depth must be from 1 to 2**31 - 1; got {self.max_depth}")
        if self.move_ns_per_byte is not None and not 1e-3 <= self.move_ns_per_byte <= 1e6:
            raise ValueError(
                f"move_ns_per_byte must be from 0.001 to 1,000,000; got {self.move_ns_per_byte!r}"
            )
        if not self.max_replay_ratio >= 0:
            raise ValueError(
                "max_replay_ratio must be above 0, or 0 for no bound; "
                f"got {self.max_replay_ratio!r}"
            )


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


def _check_choice(name: str, value: object, choices: list[str]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}; got {value!r}")


class Run:
    """One pass through a scope. What it says is current during the scope and final after it."""

    def __init__(
        self,
        options: Options,
        *,
        device: torch.device,
        trace: str | None = None,
        decisions: bool = False,
    ) -> None:
        self._options = options
        self.device = device
        """The device whose memory is within the budget."""
        gpus.forget_workspaces(device)
        self._engine = _C.Engine(_C.Options(**dataclasses.asdict(options)), str(device))
        self._step_marks: RemovableHandle | None = None
        if trace is not None:
            self._engine.record(trace)
        scheduled = any(row[0] == options.policy and row[4] for row in _C.policies())
        self._marks_steps = trace is not None or scheduled
        if decisions:
            self._engine.log_decisions()
        self._open = False  # entered and not yet left, or suspended
        self._is_patched = False
        # As the body left it: when the scope is over nothing is pinned any more.
        self._pinned: list[dict[str, Any]] = []

    def stats(self) -> Stats:
        """What the engine has done so far. May be called from any thread."""
        return Stats.from_engine(self._engine.stats())

    def pinned(self) -> list[dict[str, Any]]:
        """What cannot be evicted and why, largest first: rows with keys `bytes`, `by` and `op`.

        After the scope: what could not be evicted at its end.
        """
        return self._engine.pinned() if self._open else self._pinned

    def decisions(self) -> list[Decision]:
        """What the engine decided, in order; empty unless `recoup.budget(decisions=True)`."""
        return Decision.rows(self._engine.decisions())

    def mark_step(self, name: str = "step") -> None:
        """Says that a training step ends here; every step of an optimizer says so by itself.

        For the trace, if one is recorded, and for a policy with a schedule, which needs to know;
        otherwise it does nothing.
        """
        self._engine.mark_step(name)

    def _mark_optimizer_step(self, *_: object) -> None:
        self._engine.mark_step("optimizer step")

    def report(self) -> str:
        """The run as text: peak, work, time by kind, and what is pinned and by whom."""
        return format_report(self.stats(), self.pinned(), policy=self._options.policy)

    def check(self) -> None:
        """Recomputes the engine's books from scratch; raises when they are wrong. For tests."""
        self._engine.check()

    def finish(self, budget: int | str) -> None:
        """Completes an exit that raised OutOfBudgetError, with a larger budget.

        Raises OutOfBudgetError when that is too small as well (then call again), ValueError as
        `recoup.budget` does, RuntimeError when the scope is not waiting for it.
        """
        if not self._open:
            raise RuntimeError("finish() completes an exit that failed; this scope is over")
        self._engine.grow(parse_bytes(budget, limit_bytes=memory_bytes(self.device)))
        self._leave()

    def _enter(self) -> None:
        self._engine.enter()
        self._open = True
        if self._marks_steps:
            self._step_marks = register_optimizer_step_post_hook(self._mark_optimizer_step)
        try:
            entry_points.PATCHES.install()
            try:
                higher_order.PATCHES.install()
                self._is_patched = True
            except BaseException:
                entry_points.PATCHES.remove()
                raise
        except BaseException:
            self._leave()
            raise

    def _leave(self) -> None:
        gpus.forget_workspaces(self.device)
        self._pinned = self._engine.pinned()
        if self._step_marks is not None:
            self._step_marks.remove()
        try:
            self._engine.leave()
        except OutOfBudgetError as error:
            add_note(
                error,
                "The scope is suspended and nothing is lost: what is evicted raises when it is "
                "touched, until run.finish(budget) brings it back; "
                f"{error.enough_bytes} bytes would do.",
            )
            raise
        except OSError:  # the trace could not be written; the scope is over
            self._open = False
            self._remove_patches()
            raise
        # Not before: of an evicted storage some unwrapped entry points would end the process.
        self._open = False
        self._remove_patches()

    def _remove_patches(self) -> None:
        if self._is_patched:
            self._is_patched = False
            higher_order.PATCHES.remove()
            entry_points.PATCHES.remove()


class Budget:
    """What `recoup.budget` returns: a scope for `with`, or a decorator. Each use is a new run."""

    def __init__(
        self,
        options: Options,
        *,
        device: torch.device,
        trace: str | None = None,
        decisions: bool = False,
    ) -> None:
        self.options = options
        self.device = device
        self._trace = trace
        self._decisions = decisions
        self._runs: list[Run] = []

    def __enter__(self) -> Run:
        """Starts the scope.

        Raises RuntimeError when one is already active on the device, or a GPU has not so much free
        memory.
        """
        run = Run(self.options, device=self.device, trace=self._trace, decisions=self._decisions)
        run._enter()
        self._runs.append(run)
        return run

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Makes every live tensor resident and ends the scope.

        Raises OutOfBudgetError when they do not fit; the run is then suspended until `Run.finish`.
        The body's own exception is never hidden: what goes wrong here becomes a note on it.
        """
        run = self._runs.pop()
        try:
            run._leave()
        except Exception as leaving:
            if error is None:
                raise
            notes = " ".join(getattr(leaving, "__notes__", []))
            add_note(error, f"recoup: leaving the scope failed too: {leaving} {notes}".rstrip())

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
            again = Budget(
                self.options, device=self.device, trace=self._trace, decisions=self._decisions
            )
            with again:
                return function(*args, **kwargs)

        return wrapper
