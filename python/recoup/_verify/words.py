"""The outcome of a comparison of two runs in words."""

from collections.abc import Iterator

from recoup._verify.compare import Difference, Elements
from recoup._verify.investigation import Explanation
from recoup._verify.op_log import LoggedOp
from recoup._verify.origin import Cause, Origin
from recoup._verify.stream import Item


def difference_lines(difference: Difference, known: Explanation) -> Iterator[str]:
    """The first difference, its size, and the op that it comes from."""
    yield f"different from step {difference.step} on"
    yield f"  first difference  {name_in_words(difference.item)}{_how(difference, known.elements)}"
    yield f"  kind              {_kind(difference, known)}"
    if known.origin is not None:
        yield f"  comes from        {_op(known.origin.op)}"
        yield f"                    {_cause(known.origin)}"
    elif known.note:
        yield f"  comes from        {known.note}"


def equal_line(steps: int, replays: int | None) -> str:
    """The outcome if all items are equal. replays: None for a run without a budget."""
    said = f"equal after every step ({steps_in_words(steps)})"
    if replays is None:
        return said
    return f"{said}; replays in the budget of the other run: {replays}"


def steps_in_words(count: int) -> str:
    """A number of steps."""
    return "1 step" if count == 1 else f"{count} steps"


def ended_early_line(steps: int, missing: int) -> str:
    """The outcome if one run had more steps."""
    if missing:
        return f"different: the other run ended after {steps_in_words(steps)}, {missing} too early"
    return f"different: the other run has more than {steps_in_words(steps)}"


def name_in_words(item: Item) -> str:
    """The kind and the name of an item."""
    kind, _, number = item.owner.partition("#")
    # The number of an outermost module tells it from others of the same class.
    owner = kind if number == "0" else item.owner
    return f"{item.kind} {owner}.{item.name}" if owner else f"{item.kind} {item.name}"


def _how(difference: Difference, elements: Elements | None) -> str:
    item, other = difference.item, difference.other
    if other is None:
        return f": only {'the reference' if difference.in_reference else 'the other run'} has it"
    if not _have_same_form(item, other):
        return (
            f": {item.dtype} of shape {list(item.shape)} in the reference, "
            f"{other.dtype} of shape {list(other.shape)} in the other run"
        )
    if item.value and item.value != other.value:
        return f": {item.value} in the reference, {other.value} in the other run"
    if item.value:
        return f": {item.value} in both runs, with other bits"
    if elements is None:
        return ""
    return (
        f": {elements.differing:,} of {elements.count:,} elements, largest relative error "
        f"{elements.largest_error:.1e}"
    )


def is_rounding(known: Explanation) -> bool:
    """Whether a difference is due to rounding only."""
    if known.origin is not None and known.origin.cause is Cause.DRAWS:
        return False
    return known.elements is not None and known.elements.is_rounding


def _kind(difference: Difference, known: Explanation) -> str:
    if known.origin is not None and known.origin.cause is Cause.DRAWS:
        return "a different computation: other random numbers"
    if known.origin is not None and known.origin.cause is Cause.MEMORY:
        return "a different computation: uninitialized memory"
    item, other = difference.item, difference.other
    are_tensors = other is not None and item.kind != "generator" and _have_same_form(item, other)
    if are_tensors and known.elements is None and known.origin is None:
        return "unknown: the elements of the two runs were not compared"
    return "a rounding difference" if is_rounding(known) else "a different computation"


def _have_same_form(item: Item, other: Item) -> bool:
    return (item.dtype, item.shape) == (other.dtype, other.shape)


def _op(op: LoggedOp) -> str:
    where = f" in {op.module}" if op.module else ""
    when = ""
    if op.is_recomputed:
        when = ", run again by the backward pass"
    elif op.in_backward:
        when = ", in the backward pass"
    return f"{op.name}{where}{when}"


def _cause(origin: Origin) -> str:
    mine, its = ("the reference", "the other run")[:: 1 if origin.of_reference else -1]
    if origin.cause is Cause.MEMORY:
        return (
            f"{mine} reads memory there that no op has written: repeated with other bytes in such "
            "memory, the op has other results"
        )
    if origin.cause is Cause.DRAWS:
        return f"{its} has the same op with the same operands, and draws other numbers"
    if origin.cause is Cause.RESULTS:
        return f"{its} has the same op with the same operands, and other results"
    if origin.cause is Cause.ARGUMENTS:
        return f"its arguments are ({origin.op.arguments}), in {its} ({origin.expected})"
    where = f" of {mine}" if origin.of_reference else ""
    if origin.runs != origin.reference_runs:
        return (
            f"it runs {origin.runs} times in this step{where}, in {its} {origin.reference_runs} "
            "times"
        )
    return f"{its} does not run it on these operands"
