"""Text that may go into a page: strangers name modules, ops and arguments."""

import html
import math
from decimal import Decimal

from recoup._memory.sizes import format_bytes
from recoup._reporting.report import format_ns

OUTSIDE = "(outside of any module)"
NOTHING = "-"


def visible(text: str) -> str:
    """`text` with an escape for each character that cannot be seen.

    Lone surrogates are among them, which UTF-8 has no bytes for, and marks that turn the direction
    of what follows.
    """
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable()
        else character.encode("unicode_escape", "surrogatepass").decode()
        for character in text
    )


def escape(text: object) -> str:
    """For the text of an element and for an attribute in quotes."""
    return html.escape(visible(str(text)))


def module_name(module: str) -> str:
    """As it is shown: the empty name is what no module ran."""
    return module or OUTSIDE


def count_text(count: int) -> str:
    """A plain count, with a comma at each thousand."""
    return f"{count:,}"


def ratio_text(ratio: float) -> str:
    """Times something else, to a hundredth: '1.13x'."""
    return f"{ratio:,.2f}x"


def percent(part: float, whole: float) -> str:
    """`part` of `whole`, to a tenth."""
    return f"{100 * part / whole:,.1f} %" if whole else NOTHING


def value_text(name: str, value: object) -> str:
    """A counter or a setting; its name says what it is: `peak_bytes`, `op_ns`, `replays`."""
    if isinstance(value, float) and math.isfinite(value):
        return f"{Decimal(repr(value)):,f}"  # all of its digits, and no exponent
    if isinstance(value, bool) or not isinstance(value, int):
        return NOTHING if value is None else str(value)
    if name.endswith("bytes") and value >= 1024:
        return f"{count_text(value)} ({format_bytes(value)})"
    if name.endswith("_ns") and value >= 1000:
        return f"{count_text(value)} ({format_ns(value)})"
    return count_text(value)
