"""Budgets that are shares: "60%" and "auto". recoup._memory.shares determines their size."""

import re
from dataclasses import dataclass
from fractions import Fraction

ALSO_ALLOWED = (
    ", or a share such as '60%' of the memory available to tensors when the scope begins, or "
    "'auto' for all of that memory less a reserve"
)
"""Forms of a budget in addition to a size, for error messages."""
_PERCENT = re.compile(r"([0-9]{1,100})(?:\.([0-9]{1,100}))?\s*%")


@dataclass(frozen=True)
class Share:
    """A budget whose size is determined when its scope begins."""

    text: str
    """The text that the user gave."""
    fraction: Fraction | None
    """Share of the memory available to tensors, above 0 and at most 1. None: "auto"."""


def parse_share(value: object, *, name: str = "budget") -> Share | None:
    """The share that `value` states; None if it is not the text of a share.

    Raises ValueError that says what is allowed if the text ends with % and is not a percentage
    above 0 and at most 100. `name` begins the message.
    """
    if not isinstance(value, str):
        return None
    text = value.strip()
    if text.lower() == "auto":
        return Share(value, None)
    if not text.endswith("%"):
        return None
    match = _PERCENT.fullmatch(text)
    percent = Fraction(text.removesuffix("%").strip()) if match else Fraction(0)
    if not 0 < percent <= 100:
        raise ValueError(
            f"{name} in percent must be a number above 0 and at most 100, such as '60%' or "
            "'12.5%': a share of the memory available to tensors when the scope begins; got "
            f"{value!r}"
        )
    return Share(value, percent / 100)
