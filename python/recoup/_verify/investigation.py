"""Repeats two runs up to their first difference, to find the op that it comes from."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

from recoup._verify.compare import (
    Difference,
    Elements,
    compare_elements,
    compare_numbers,
    read_elements,
)
from recoup._verify.follower import Look
from recoup._verify.op_log import read_log
from recoup._verify.origin import Origin, origin_of
from recoup._verify.stream import Item

NO_OP = "no op: input data, or code outside PyTorch's ops"
OBSERVED = "unknown: the difference is gone while ops are observed, as they are then not compiled"
NOT_OBSERVED = "unknown: the ops of the step could not be observed"
NOT_REPEATED = "unknown: a run computed something else when it was repeated"


@dataclasses.dataclass(frozen=True)
class Explanation:
    """What is known about a difference."""

    elements: Elements | None = None
    """How the elements differ."""
    origin: Origin | None = None
    """The op that it comes from."""
    note: str = ""
    """Why the op is not known."""


def explain_digests(difference: Difference) -> Explanation:
    """What the digests tell, without a repetition of the runs: numbers can be compared."""
    item, other = difference.item, difference.other
    if other is None or not (item.value and other.value) or not _are_comparable(item, other):
        return Explanation()
    return Explanation(compare_numbers(item, other))


def explain(
    difference: Difference,
    folder: Path,
    repeat_reference: Callable[[Look], str | None],
    repeat_other: Callable[[Look], str | None],
) -> Explanation:
    """Compares the elements and the ops of both runs.

    The functions repeat a run and return the digest of the item that the look found. `folder` is
    for the files of the looks.
    """
    item, other = difference.item, difference.other
    known = explain_digests(difference).elements
    if other is None:
        return Explanation()
    for is_observed in (True, False):
        mine = _look(difference.step, item, folder / "reference", is_observed)
        others = _look(difference.step, other, folder / "other", is_observed)
        if repeat_reference(mine) != item.digest or repeat_other(others) != other.digest:
            continue
        elements = known or _elements(item, other, mine.elements, others.elements)
        if mine.log is None or others.log is None:
            return Explanation(elements, note=OBSERVED)
        ops, other_ops = [*read_log(mine.log)], [*read_log(others.log)]
        if not ops or not other_ops:  # they ran on another thread
            return Explanation(elements, note=NOT_OBSERVED)
        origin = origin_of([other.digest], ops, other_ops)
        return Explanation(elements, origin, "" if origin is not None else NO_OP)
    return Explanation(known, note=NOT_REPEATED)


def _look(step: int, item: Item, path: Path, is_observed: bool) -> Look:
    log = path.with_suffix(".log") if is_observed else None
    elements = path.with_suffix(".elements")
    elements.unlink(missing_ok=True)
    return Look(step, item.key, log, elements)


def _elements(item: Item, other: Item, mine: Path, others: Path) -> Elements | None:
    if not _are_comparable(item, other) or not mine.exists() or not others.exists():
        return None
    return compare_elements(read_elements(mine, item), read_elements(others, other))


def _are_comparable(item: Item, other: Item) -> bool:
    return (item.dtype, item.shape) == (other.dtype, other.shape)
