"""Budgets "60%" and "auto". recoup._memory.sizing determines their size."""

import re
from dataclasses import dataclass
from fractions import Fraction

ALSO_ALLOWED = (
    ", or a percentage such as '60%' of the memory available to tensors when the scope begins, or "
    "'auto' for all of that memory less a reserve"
)
"""Forms of a budget in addition to a size, for error messages."""
_PERCENT = re.compile(r"([0-9]{1,100})(?:\.([0-9]{1,100}))?\s*%")


@dataclass(frozen=True)
class MemoryFraction:
    """A budget whose size is determined when its scope begins."""

    text: str
    """The text that the user gave."""
    value: Fraction | None
    """Fraction of the memory available to tensors, above 0 and at most 1. None: "auto"."""


def parse_fraction(value: object, *, name: str = "budget") -> MemoryFraction | None:
    """The fraction that `value` states; None if it is a size, or no text.

    Raises ValueError that says what is allowed if the text ends with % and is not a percentage
    above 0 and at most 100. `name` begins the message.
    """
    if not isinstance(value, str):
        return None
    text = value.strip()
    if text.lower() == "auto":
        return MemoryFraction(value, None)
    if not text.endswith("%"):
        return None
    match = _PERCENT.fullmatch(text)
    percent = Fraction(text.removesuffix("%").strip()) if match else Fraction(0)
    if not 0 < percent <= 100:
        raise ValueError(
            f"{name} in percent must be a number above 0 and at most 100, such as '60%' or "
            "'12.5%', of the memory available to tensors when the scope begins; got "
            f"{value!r}"
        )
    return MemoryFraction(value, percent / 100)
