"""Makes each call of a graph that `torch.compile` made with Inductor one op of the scope.

The kernels of such a graph write through pointers that no op shows. So the engine gets the whole
call: its inputs are pinned while it runs, and its results can be evicted and are restored by
calling the graph again. See Note [Compiled graphs] in compiled_frame.h.
"""

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.overrides
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import any_torch_dispatch_mode_on_stack

from recoup import _C
from recoup._patching.compiled_plan import Plan, name_of, plan_of
from recoup._patching.late_patches import LatePatches, LateReplacement, LateSetting
from recoup.errors import OutOfBudgetError, add_note

_Function = Callable[..., Any]

_PLAIN = (int, float, bool, complex, str, type(None))
_COPIED_SHARE = 8
"""Changed inputs are copied if they have at most 1 / this number of the bytes of all inputs."""


class _Call:
    """One call of a graph: runs it, and replays it."""

    def __init__(self, original: _Function, graph: Any, inputs: Sequence[Any]) -> None:
        self._original = original
        self._graph = graph
        self._inputs: list[Any] = [
            None if isinstance(each, torch.Tensor) else each for each in inputs
        ]
        self.read: list[int] = []
        self.written: list[int] = []
        self.copied: list[int] = []
        self.results: list[Any] | None = None
        """Results of the first run, with None in place of tensors."""
        self.tensors: list[int] = []
        """Positions of tensors among the results."""

    def __call__(self, read: list[torch.Tensor], written: list[torch.Tensor]) -> list[torch.Tensor]:
        inputs = list(self._inputs)
        # `read` has the graph's inputs, and after them its constants.
        for slot, tensor in zip(self.read, read, strict=False):
            inputs[slot] = tensor
        for slot, tensor in zip(self.written, written, strict=True):
            inputs[slot] = tensor
        if self.results is not None:
            # At a replay the program may be inside modes of its own.
            with torch._C.DisableTorchFunction():
                results, changed = self._run(inputs)
        else:
            results, changed = self._run(inputs)
            self.results = [None if isinstance(each, torch.Tensor) else each for each in results]
            self.tensors = [i for i, each in enumerate(results) if isinstance(each, torch.Tensor)]
        return [each for each in results if isinstance(each, torch.Tensor)] + changed

    def _run(self, inputs: list[Any]) -> tuple[Sequence[Any], list[torch.Tensor]]:
        """The graph's results, and the copies of inputs that it has changed."""
        for slot in self.copied:
            inputs[slot] = torch.clone(inputs[slot])
        changed = [inputs[slot] for slot in self.copied]
        return self._original(self._graph, inputs), changed  # it clears the list


def _as_one_op(original: _Function) -> _Function:
    @functools.wraps(original)
    def call(self: Any, inputs: list[Any]) -> Any:
        return _run(original, self, inputs) if _C.watching() else original(self, inputs)

    return call


def _run(original: _Function, graph: Any, inputs: list[Any]) -> tuple[Any, ...]:
    plan = plan_of(graph, len(inputs))
    how, why = _how(plan, inputs)
    call = _Call(original, graph, inputs)
    given = [i for i, each in enumerate(inputs) if isinstance(each, torch.Tensor)]
    if how == "op" and plan.mutated:
        call.copied = _copied(inputs, given, plan)
    call.written = sorted((plan.mutated | plan.donated) - set(call.copied))
    call.written = [i for i in call.written if i in given]
    call.read = [i for i in given if i not in call.written]
    changed = [inputs[i] for i in call.copied]
    for i in call.copied:
        inputs[i] = _C.copy_aside(inputs[i])
    read = [inputs[i] for i in call.read] + list(plan.constants)
    try:
        made = _C.run_compiled(call, read, [inputs[i] for i in call.written], how)
    except OutOfBudgetError as error:
        if call.written:
            add_note(
                error,
                f"The op is a compiled graph ({name_of(graph)}) that modifies its inputs and may "
                "have modified them before it failed; a second run would modify them again.",
            )
        raise
    inputs.clear()
    results = call.results or []
    count = len(call.tensors)
    for i, tensor in zip(call.tensors, made[:count], strict=True):
        results[i] = tensor
    for tensor, new in zip(changed, made[count:], strict=True):
        _C.copy_back(tensor, new)
        results = [_in_place_of(each, new, tensor) for each in results]
    call.results = []
    if call.tensors and (why or call.written):
        REASONS.add(name_of(graph), why or "it modifies large inputs, which are expensive to copy")
    return tuple(results)


def _how(plan: Plan, inputs: Sequence[Any]) -> tuple[str, str]:
    """How the graph is run; unless "op", also the reason why it cannot be replayed."""
    if plan.why_opaque:
        return "opaque", plan.why_opaque
    if plan.why_once:
        return "once", plan.why_once
    for each in inputs:
        if not isinstance(each, (torch.Tensor, *_PLAIN)):
            return "opaque", f"one of its arguments is an object of type {type(each).__name__}"
    # Modes see the ops that the graph calls, and may change their behavior.
    if any_torch_dispatch_mode_on_stack() or not all(
        isinstance(mode, DeviceContext)  # graphs name each device
        for mode in torch.overrides._get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    ):
        return "once", "a mode that intercepts functions or ops was active"
    return "op", ""


def _copied(inputs: Sequence[Any], given: list[int], plan: Plan) -> list[int]:
    """The inputs to copy so that the call can be replayed: all that the graph changes.

    Empty if copying is expensive, or if another tensor that the graph reads shares their memory.
    """
    slots = [i for i in sorted(plan.mutated) if i in given]
    changed = [inputs[i] for i in slots]
    size = sum(each.nbytes for each in changed)
    if size * _COPIED_SHARE > sum(inputs[i].nbytes for i in given):
        return []
    if not all(each.is_contiguous() for each in changed):
        return []
    others = [inputs[i] for i in given if i not in slots]
    return [] if _C.share_memory(changed, [*others, *plan.constants]) else slots


def _in_place_of(result: Any, copy: torch.Tensor, changed: torch.Tensor) -> Any:
    """A result that aliases the copy, as the same view of the changed input; others unchanged."""
    if not isinstance(result, torch.Tensor) or not _is_alias(result, copy):
        return result
    if result is copy:
        return changed
    offset = result.storage_offset() - copy.storage_offset() + changed.storage_offset()
    return changed.as_strided(result.size(), result.stride(), offset)


def _is_alias(one: torch.Tensor, other: torch.Tensor) -> bool:
    address = torch._C._storage_address  # type: ignore[attr-defined]
    return torch._C._has_storage(one) and address(one) == address(other)


class _Reasons:
    """Graphs that were not replayable, and the reasons, for the reports of open scopes.

    Has no lock, which an interrupt could leave locked: each method is one call of C code.
    """

    def __init__(self) -> None:
        self._calls: Counter[tuple[str, str]] = Counter()

    def add(self, graph: str, why: str) -> None:
        self._calls.update([(graph, why)])

    def so_far(self) -> Counter[tuple[str, str]]:
        return Counter(self._calls)


REASONS = _Reasons()
"""Reasons of all calls of this process in scopes."""


def kept_since(before: Counter[tuple[str, str]]) -> Counter[str]:
    """The number of calls for each reason since `REASONS.so_far()` was `before`."""
    kept: Counter[str] = Counter()
    for (_, why), calls in (REASONS.so_far() - before).items():
        kept[why] += calls
    return kept


PATCHES = LatePatches(
    [
        LateReplacement("torch._inductor.output_code", "CompiledFxGraph", "__call__", _as_one_op),
        # A backward graph may reuse memory of its inputs ("donated"), which a scope may have to
        # restore. The setting is part of the keys of compiled graphs in caches on disk.
        LateSetting("torch._functorch.config", "donated_buffer", False),
    ]
)
"""Installed while a scope is active."""
