"""Compares the items of two runs after each step, and the elements of the first that differs."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from recoup._verify.stream import KINDS, Item, Step

_ROUNDING = 1024
"""Largest difference of two roundings, in units in the last place of the largest element."""
_LARGEST_FRACTION = 2**-6
"""Largest difference of two roundings, as a fraction of the largest element: for few bits."""
_PIECE = 1 << 20
"""Number of elements that are compared at a time."""


@dataclasses.dataclass(frozen=True)
class Difference:
    """The first item that differs after a step."""

    step: int
    item: Item
    """In the reference; in the other run if the reference lacks it."""
    other: Item | None
    """In the other run; None if one of the runs lacks it."""
    in_reference: bool = True
    """Whether the reference has it. If it does not, only the other run has it."""

    @property
    def digests(self) -> tuple[str, str]:
        """In the reference and in the other run; empty where a run lacks it."""
        if self.other is not None:
            return self.item.digest, self.other.digest
        return (self.item.digest, "") if self.in_reference else ("", self.item.digest)


def first_difference(reference: Step, other: Step) -> Difference | None:
    """The first item of `reference` that differs in `other`, or that one of them lacks.

    Items are matched by name. If names differ, as in a wrapped model, but not the kinds, types and
    shapes, they are matched by place.
    """
    mine, others = reference.items, other.items
    pairs: list[tuple[Item | None, Item | None]]
    if [one.key for one in mine] != [one.key for one in others] and _alike(mine, others):
        pairs = list(zip(mine, others, strict=True))
    else:
        by_key = {one.key: one for one in others}
        pairs = [(one, by_key.pop(one.key, None)) for one in mine]
        pairs += [(None, one) for one in by_key.values()]
        # A step computes gradients before parameters, whichever run has them.
        pairs.sort(key=lambda pair: min(KINDS.index(one.kind) for one in pair if one is not None))
    for one, found in pairs:
        if one is None:
            assert found is not None
            return Difference(reference.number, found, None, in_reference=False)
        if found is None or _bits(one) != _bits(found):
            return Difference(reference.number, one, found)
    return None


def _alike(mine: Sequence[Item], others: Sequence[Item]) -> bool:
    def shape(item: Item) -> tuple[str, str, tuple[int, ...]]:
        return item.kind, item.dtype, item.shape

    return [shape(one) for one in mine] == [shape(one) for one in others]


def _bits(item: Item) -> tuple[str, tuple[int, ...], str]:
    return item.dtype, item.shape, item.digest


@dataclasses.dataclass(frozen=True)
class Elements:
    """How the elements of two tensors of the same type and shape differ."""

    differing: int
    """Number of elements whose bits differ."""
    count: int
    """Number of all elements."""
    largest_error: float
    """Largest difference of two elements, over the larger of their absolute values."""
    is_rounding: bool
    """Whether no difference exceeds that of two roundings. Infinities and NaNs do."""


def compare_elements(reference: Tensor, other: Tensor) -> Elements:
    """Compares flat tensors of the same type and number of elements, piece by piece."""
    differing, relative, absolute, largest = 0, 0.0, 0.0, 0.0
    for a, b in zip(torch.split(reference, _PIECE), torch.split(other, _PIECE), strict=True):
        width = a.element_size()
        unequal = (a.view(torch.uint8) != b.view(torch.uint8)).view(-1, width).any(1)
        differing += int(unequal.sum())
        wide = torch.complex128 if a.is_complex() else torch.float64
        x, y = a.to(wide), b.to(wide)
        is_finite = x.isfinite() & y.isfinite()
        scale = torch.where(is_finite, torch.maximum(x.abs(), y.abs()), 0.0)
        error = torch.where(is_finite, (x - y).abs(), math.inf)
        error = torch.where(unequal, error, 0.0)
        ratio = torch.where(is_finite & (error > 0), error / scale, error)
        relative = max(relative, float(ratio.max()))
        absolute = max(absolute, float(error.max()))
        largest = max(largest, float(scale.max()))
    return Elements(
        differing, reference.numel(), relative, _is_rounding(reference.dtype, absolute, largest)
    )


def _is_rounding(dtype: torch.dtype, error: float, largest: float) -> bool:
    if not (dtype.is_floating_point or dtype.is_complex):
        return False
    unit = torch.finfo(dtype).eps
    return error <= min(_ROUNDING * unit, max(_LARGEST_FRACTION, 2 * unit)) * largest


def read_elements(path: Path, item: Item) -> Tensor:
    """The elements of a tensor in a file, without reading all of them at once."""
    return torch.from_file(str(path), size=math.prod(item.shape), dtype=_type_of(item))


def compare_numbers(reference: Item, other: Item) -> Elements:
    """Compares two items of the same type that have a single element each."""
    if reference.value == other.value:  # two NaNs
        return Elements(1, 1, math.inf, is_rounding=False)
    return compare_elements(_number_of(reference), _number_of(other))


def _number_of(item: Item) -> Tensor:
    return torch.tensor([float(item.value)], dtype=_type_of(item))


def _type_of(item: Item) -> torch.dtype:
    kind: torch.dtype = getattr(torch, item.dtype.removeprefix("torch."))
    return kind
