"""The errors that ended a run, and the holders of its memory when they were raised."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from recoup._memory.sizes import format_bytes
from recoup._reporting.report import NO_MODULE, counted
from recoup.errors import OutOfBudgetError
from recoup.rows import TAKEN_AT, Holder, PinnedValue, recorded

if TYPE_CHECKING:
    from recoup._reporting.attribution import Attribution

Where = Literal["body", "exit"]

FIGURES = (
    "asked_bytes",
    "budget_bytes",
    "external_bytes",
    "non_recomputable_bytes",
    "pinned_bytes",
    "workspace_bytes",
    "evictable_bytes",
    "largest_window_bytes",
    "least_bytes",
    "next_bytes",
    "next_spill_bytes",
    "enough_bytes",
)
"""The fields of an OutOfBudgetError that a report includes."""

_SET_BUDGET = "the change to a smaller budget"
"""`OutOfBudgetError.op` of run.set_budget."""
_HELD = "Memory held when the allocation failed, by module and kind:"
NOTED_ROWS = 6
"""Maximum number of holders in the note of an error."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """An exception that ended the body of a scope, or its exit. Keeps no tensor alive."""

    where: Where
    type: str
    """The exception's class, as a traceback names it."""
    message: str
    """First line of the exception's message."""
    op: str = ""
    """The op or other activity that asked for memory; empty unless an OutOfBudgetError."""
    module: str = ""
    """The module that ran this op; empty if there is none or it is not known."""
    figures: Mapping[str, int] = field(default_factory=dict)
    """Values of the fields in FIGURES; empty unless an OutOfBudgetError."""
    help: tuple[str, ...] = ()
    """Remedies, one sentence each."""
    taken: str = ""
    """A sentence with the lines of the program that took addresses; empty if none did."""
    charged_bytes: int = 0
    """Bytes charged when memory was refused."""
    rows: tuple[Holder, ...] | None = None
    """Holders of these bytes, as in `Run.holders`; None if they are not known."""
    step: Mapping[str, Any] | None = None
    """The step until the failure, in the form of Result.step."""

    def to_dict(self) -> dict[str, Any]:
        """All fields but the step, for a report."""
        names = ("where", "type", "message", "op", "module", "charged_bytes")
        return {
            **{name: getattr(self, name) for name in names},
            "figures": dict(self.figures),
            "help": list(self.help),
            "rows": None if self.rows is None else list(map(recorded, self.rows)),
        }


def failure_of(
    error: BaseException | None,
    where: Where,
    attribution: "Attribution | None",
    pinned: Callable[[], Sequence[PinnedValue]],
) -> Failure | None:
    """The record of `error`; None if it is no failure, such as an exit with code 0.

    pinned: returns the values that cannot be evicted.
    Also finds an OutOfBudgetError among the causes of another exception. Call this before the scope
    is left, while the names of tensors are still known.
    """
    if error is None or isinstance(error, GeneratorExit):
        return None
    if isinstance(error, SystemExit) and not error.code:
        return None
    refused = _refusal_in(error)
    kind = type(error)
    known: dict[str, Any] = {}
    if refused is not None:
        known = _refused(refused, where, attribution)
        known["taken"] = _taken(pinned())
        known["help"] += (known["taken"],) * bool(known["taken"])
    name = kind.__qualname__
    return Failure(
        where=where,
        type=name if kind.__module__ == "builtins" else f"{kind.__module__}.{name}",
        message=_first_line(error),
        **known,
    )


def _refusal_in(error: BaseException) -> OutOfBudgetError | None:
    """The first OutOfBudgetError among the exception and its causes; None if there is none."""
    return next((each for each in _chain(error) if isinstance(each, OutOfBudgetError)), None)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception, its cause, and so on."""
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        yield at
        at = at.__cause__ or (None if at.__suppress_context__ else at.__context__)


def _first_line(error: BaseException) -> str:
    try:
        return next(iter(str(error).splitlines()), "")
    except Exception:  # raised by the program's own exception class
        return ""


def _refused(
    error: OutOfBudgetError, where: Where, attribution: "Attribution | None"
) -> dict[str, Any]:
    known: dict[str, Any] = {
        "op": error.op,
        "figures": {name: getattr(error, name) for name in FIGURES},
        "help": tuple(_help(error, where)),
    }
    if attribution is None:
        return known
    attribution.name_all()
    result = attribution.result()
    refusal = result.refusal
    if refusal is None or not _is_of(refusal, error):
        return known
    known["module"] = result.module(refusal["maker"]) if where == "body" else ""
    known["charged_bytes"] = refusal["charged_bytes"]
    known["rows"] = tuple(result.rows_of(refusal["holdings"]))
    known["step"] = refusal["step"]
    return known


def _taken(pinned: Iterable[PinnedValue]) -> str:
    """A sentence about values whose address a known line of the program took; empty if none."""
    rows = [row for row in pinned if row.by == "escape" and row.why.startswith(TAKEN_AT)]
    if not rows:
        return ""
    lines = Counter[str]()
    for row in rows:
        lines[row.why.removeprefix(f"{TAKEN_AT} ")] += row.bytes
    named = [line for line, _ in lines.most_common(NOTED_ROWS)]
    more = f" and {len(lines) - len(named)} other lines" * (len(lines) > len(named))
    return (
        f"The program took the address of {counted(len(rows), 'tensor')}, "
        f"{format_bytes(sum(lines.values()))}, at {', '.join(named)}{more}. Neither these tensors "
        "nor what is computed from them is evicted."
    )


def note_holders(error: BaseException, failure: Failure) -> None:
    """Adds what is known of the memory's holders as notes to the OutOfBudgetError.

    Before Python 3.11 errors have no notes; `Run.failures` and a report have the rows.
    """
    refused = _refusal_in(error)
    if refused is None or not hasattr(refused, "add_note"):
        return
    notes = [failure.taken] * bool(failure.taken)
    if failure.rows:
        notes.append(_holders_note(failure.rows))
    for note in notes:
        if note not in getattr(refused, "__notes__", ()):
            refused.add_note(note)


def _holders_note(rows: Sequence[Holder]) -> str:
    shown = [
        (row.module or NO_MODULE, str(row.kind), format_bytes(row.bytes))
        for row in rows[:NOTED_ROWS]
    ]
    if rest := rows[NOTED_ROWS:]:
        left = format_bytes(sum(row.bytes for row in rest))
        shown.append((f"{len(rest)} other rows in the report", "", left))
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    lines = [
        f"  {module:<{widths[0]}}  {kind:<{widths[1]}}  {size:>{widths[2]}}"
        for module, kind, size in shown
    ]
    return "\n".join([_HELD, *lines])


def _is_of(refusal: Mapping[str, Any], error: OutOfBudgetError) -> bool:
    """Whether the engine's last refusal belongs to the error."""
    names = ("asked_bytes", "non_recomputable_bytes", "pinned_bytes", "evictable_bytes")
    return all(refusal[name] == getattr(error, name) for name in names)


def _help(error: OutOfBudgetError, where: Where) -> Iterator[str]:
    if error.enough_bytes == 0:
        yield (
            "No budget is enough with this `block_size`: the allocation is larger than a block. "
            "Leave `block_size` out."
        )
    elif where == "exit":
        yield (
            f"run.resume({error.enough_bytes}), a budget of {format_bytes(error.enough_bytes)}, "
            "completes the exit. A smaller budget is enough if you `del` tensors that are not "
            "needed after the scope."
        )
    elif error.op == _SET_BUDGET:
        yield (
            f"run.set_budget({error.enough_bytes}), a budget of "
            f"{format_bytes(error.enough_bytes)}, is enough for what cannot be evicted now."
        )
    else:
        least = f" No budget below {format_bytes(error.least_bytes)} is enough." * bool(
            error.least_bytes
        )
        yield (
            f"The budget to try next is {format_bytes(error.next_bytes)}; `recoup suggest` finds "
            f"the least that works.{least} A budget of {format_bytes(error.enough_bytes)} is "
            "enough, without evictions, for everything that ran so far and for this allocation."
        )
    if error.non_recomputable_bytes:
        room = f" of {format_bytes(error.next_spill_bytes)}" * bool(error.next_spill_bytes)
        yield (
            f"A spill tier{room} (spill=SIZE) can take tensors that cannot be recomputed: "
            f"{format_bytes(error.non_recomputable_bytes)} of them were in the pool."
        )
    if error.external_bytes:
        yield (
            f"{format_bytes(error.external_bytes)} were charged for memory outside the pool, "
            "which cannot be evicted: tensors that were made outside the scope, or whose address "
            "was given to NumPy or other code. Make the model inside the scope."
        )
    if error.pinned_bytes:
        yield (
            f"{format_bytes(error.pinned_bytes)} could be neither moved nor evicted: they were "
            "used by the running op, held by recoup.pin, or their address was given to other "
            "code. They can be evicted when they are released."
        )
    if error.evictable_bytes and error.largest_window_bytes < error.asked_bytes:
        yield (
            "The largest address range that could be freed has "
            f"{format_bytes(error.largest_window_bytes)}, less than the allocation: pinned "
            "tensors divide the memory."
        )
