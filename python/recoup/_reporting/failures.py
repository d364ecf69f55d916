"""What ended a run that failed, and who held its memory at that moment."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from recoup._memory.sizes import format_bytes
from recoup._reporting.report import NO_MODULE
from recoup.errors import OutOfBudgetError

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
    "likely_bytes",
    "enough_bytes",
)
"""Of an OutOfBudgetError, those that a report has."""

_HELD = "Who held memory when it was refused, by module and kind:"
NOTED_ROWS = 6
"""The most holders in the note of an error."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """An exception that ended the body of a scope, or its exit. It keeps no tensor alive."""

    where: Where
    type: str
    """As a traceback names it."""
    message: str
    """Its first line."""
    op: str = ""
    """Of an OutOfBudgetError: what asked for memory."""
    module: str = ""
    """The module that ran this op; empty: none, or it is not known."""
    figures: Mapping[str, int] = field(default_factory=dict)
    """Of an OutOfBudgetError, by the names in FIGURES; of others empty."""
    help: tuple[str, ...] = ()
    """What would have helped, a sentence each."""
    charged_bytes: int = 0
    """When memory was refused."""
    rows: tuple[Mapping[str, Any], ...] | None = None
    """Who held these bytes, as `Run.holders` has them; None: that is not known."""
    step: Mapping[str, Any] | None = None
    """What there was of the step until then, as Result.step has it."""

    def to_dict(self) -> dict[str, Any]:
        """For a report: all but the step."""
        names = ("where", "type", "message", "op", "module", "charged_bytes")
        return {
            **{name: getattr(self, name) for name in names},
            "figures": dict(self.figures),
            "help": list(self.help),
            "rows": None if self.rows is None else [dict(row) for row in self.rows],
        }


def failure_of(
    error: BaseException | None, where: Where, attribution: "Attribution | None"
) -> Failure | None:
    """What to keep of `error`; None: it is no failure, as an exit with code 0.

    An OutOfBudgetError is found behind another exception that was raised for it, too. To be called
    before the scope is left: then what holds memory still has its names.
    """
    if error is None or isinstance(error, GeneratorExit):
        return None
    if isinstance(error, SystemExit) and not error.code:
        return None
    refused = _refusal_in(error)
    kind = type(error)
    known: dict[str, Any] = {} if refused is None else _refused(refused, where, attribution)
    name = kind.__qualname__
    return Failure(
        where=where,
        type=name if kind.__module__ == "builtins" else f"{kind.__module__}.{name}",
        message=_first_line(error),
        **known,
    )


def _refusal_in(error: BaseException) -> OutOfBudgetError | None:
    """The first OutOfBudgetError among the exception and those for which it was raised."""
    return next((each for each in _chain(error) if isinstance(each, OutOfBudgetError)), None)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception, and those for which it was raised."""
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        yield at
        at = at.__cause__ or (None if at.__suppress_context__ else at.__context__)


def _first_line(error: BaseException) -> str:
    try:
        return next(iter(str(error).splitlines()), "")
    except Exception:  # of a class of the program's
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


def note_holders(error: BaseException, failure: Failure) -> None:
    """Adds to the OutOfBudgetError who held the memory, where that is known.

    Before Python 3.11 an error has no notes; `Run.failures` and a report have the rows.
    """
    refused = _refusal_in(error)
    if refused is None or not failure.rows or not hasattr(refused, "add_note"):
        return
    shown = [
        (str(row["module"]) or NO_MODULE, str(row["kind"]), format_bytes(row["bytes"]))
        for row in failure.rows[:NOTED_ROWS]
    ]
    if rest := failure.rows[NOTED_ROWS:]:
        left = format_bytes(sum(row["bytes"] for row in rest))
        shown.append((f"{len(rest)} other rows in the report", "", left))
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    lines = [
        f"  {module:<{widths[0]}}  {kind:<{widths[1]}}  {size:>{widths[2]}}"
        for module, kind, size in shown
    ]
    note = "\n".join([_HELD, *lines])
    if note not in getattr(refused, "__notes__", ()):
        refused.add_note(note)


def _is_of(refusal: Mapping[str, Any], error: OutOfBudgetError) -> bool:
    """Whether the last refusal that the engine knows is that of the error."""
    names = ("asked_bytes", "non_recomputable_bytes", "pinned_bytes", "evictable_bytes")
    return all(refusal[name] == getattr(error, name) for name in names)


def _help(error: OutOfBudgetError, where: Where) -> Iterator[str]:
    if error.enough_bytes == 0:
        yield (
            "No budget is enough with these segments: the request is larger than `block_size`. "
            "Leave `block_size` out."
        )
    elif where == "exit":
        yield (
            f"run.resume({error.enough_bytes}) completes the exit; that is a budget of "
            f"{format_bytes(error.enough_bytes)}. `del` tensors that are not needed after the "
            "scope, and a smaller budget is enough."
        )
    else:
        least = f" No budget below {format_bytes(error.least_bytes)} is." * bool(error.least_bytes)
        yield (
            f"A budget of {format_bytes(error.enough_bytes)} is enough for all that ran so far and "
            f"for this request.{least}"
        )
    if error.non_recomputable_bytes:
        yield (
            f"A spill tier, spill=..., takes tensors that cannot be computed again: "
            f"{format_bytes(error.non_recomputable_bytes)} were in the pool."
        )
    if error.external_bytes:
        yield (
            f"{format_bytes(error.external_bytes)} were charged for memory outside of the pool, "
            "where nothing can be evicted: tensors that were made outside the scope, or whose "
            "address NumPy or other code was given. Make the model inside the scope."
        )
    if error.pinned_bytes:
        yield (
            f"{format_bytes(error.pinned_bytes)} could not move or go: the running op used them, "
            "or recoup.pin or other code held them. They can be evicted again when they are "
            "no longer held."
        )
    if error.evictable_bytes and error.largest_window_bytes < error.asked_bytes:
        yield (
            f"The largest range of addresses that could be emptied has "
            f"{format_bytes(error.largest_window_bytes)}, less than the request: what is pinned "
            "lies in between."
        )
