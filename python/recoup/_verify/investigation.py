"""Repeats two runs up to their first difference, to find the op that it comes from."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from recoup._verify.compare import (
    Difference,
    Elements,
    compare_elements,
    compare_numbers,
    read_elements,
)
from recoup._verify.follower import Look
from recoup._verify.memory import FILLS
from recoup._verify.op_log import LoggedOp, read_log
from recoup._verify.origin import Cause, Origin, origin_of
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
    item, other = difference.item, difference.other or difference.item
    known = explain_digests(difference).elements
    wanted = difference.digests
    note = NOT_REPEATED
    for is_observed in (True, False):
        mine = _look(difference.step, item, folder / "reference", is_observed)
        others = _look(difference.step, other, folder / "other", is_observed)
        if repeat_reference(mine) != wanted[0] or repeat_other(others) != wanted[1]:
            continue
        elements = known or _elements(item, other, mine.elements, others.elements)
        if mine.log is None or others.log is None:
            known, note = elements, OBSERVED
            break
        ops, other_ops = [*read_log(mine.log)], [*read_log(others.log)]
        if not ops or not other_ops:  # they ran on another thread
            return Explanation(elements, note=NOT_OBSERVED)
        origin = _origin(wanted, ops, other_ops)
        return Explanation(elements, origin, "" if origin is not None else NO_OP)
    for one, repeat in ((other, repeat_other), (item, repeat_reference)):
        origin = _reader_of_memory(difference.step, one, folder, repeat)
        if origin is not None:
            origin = dataclasses.replace(origin, of_reference=repeat is repeat_reference)
            return Explanation(known, origin)
    return Explanation(known, note=note)


def _origin(
    digests: tuple[str, str], ops: Sequence[LoggedOp], other_ops: Sequence[LoggedOp]
) -> Origin | None:
    """The op that the other run's value comes from; the reference's, if only that has a value."""
    if digests[1]:
        return origin_of([digests[1]], ops, other_ops)
    found = origin_of([digests[0]], other_ops, ops)
    return None if found is None else dataclasses.replace(found, of_reference=True)


def _reader_of_memory(
    step: int, item: Item, folder: Path, repeat: Callable[[Look], str | None]
) -> Origin | None:
    """The op of a run whose results depend on uninitialized memory; None: there is none.

    With the same fill the run must repeat, or it would differ for another reason.
    """
    fills = (FILLS[0], FILLS[0], FILLS[1])
    looks = [
        dataclasses.replace(_look(step, item, folder / f"filled-{number}", True), fill=fill)
        for number, fill in enumerate(fills)
    ]
    digests = [repeat(look) for look in looks]
    if not all(digests) or digests[0] != digests[1] or digests[0] == digests[2]:
        return None
    logs = [[*read_log(look.log)] for look in looks if look.log is not None]
    # In this order: with the first fill, no value is that of another tensor by chance.
    found = origin_of([digests[0] or ""], logs[2], logs[0])
    if found is None or found.cause not in (Cause.RESULTS, Cause.DRAWS):
        return None
    return dataclasses.replace(found, cause=Cause.MEMORY)


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
