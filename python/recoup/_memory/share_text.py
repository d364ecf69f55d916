"""Budgets that are no size: "60%" and "auto". recoup._memory.shares decides what they come to."""

import re
from dataclasses import dataclass
from fractions import Fraction

ALSO_ALLOWED = (
    ", or a share such as '60%' of what tensors may have when the scope begins, or 'auto': all of "
    "that less a reserve"
)
"""What a budget may be besides a size, for error messages."""
_PERCENT = re.compile(r"([0-9]{1,100})(?:\.([0-9]{1,100}))?\s*%")


@dataclass(frozen=True)
class Share:
    """A budget that is decided when its scope begins."""

    text: str
    """As it was given."""
    fraction: Fraction | None
    """Of what tensors may have then, above 0 and at most 1. None: all less a reserve."""


def parse_share(value: object, *, name: str = "budget") -> Share | None:
    """The share that `value` is; None for what is no text of one.

    Raises ValueError, saying what is allowed, for text that ends with % and is no percent from
    above 0 to 100. `name` begins the message.
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
            f"'12.5%': a share of what tensors may have when the scope begins; got {value!r}"
        )
    return Share(value, percent / 100)
