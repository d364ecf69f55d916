"""Escapes for text in a page, as names of modules, ops and arguments are untrusted."""

import html
import math
from decimal import Decimal

from recoup._memory.sizes import format_bytes
from recoup._reporting.report import format_ns

OUTSIDE = "(outside of any module)"
NOTHING = "-"


def visible(text: str) -> str:
    """`text` with an escape for each invisible character.

    These include lone surrogates, which UTF-8 cannot encode, and marks that change the direction of
    the text after them.
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
    """Escapes `text` for the content of an element or for a quoted attribute."""
    return html.escape(visible(str(text)))


def module_name(module: str) -> str:
    """The displayed name of a module; the empty name stands for code outside of all modules."""
    return module or OUTSIDE


def count_text(count: int) -> str:
    """A plain count, with a comma at each thousand."""
    return f"{count:,}"


def ratio_text(ratio: float) -> str:
    """A multiple, to a hundredth: '1.13x'."""
    return f"{ratio:,.2f}x"


def percent(part: float, whole: float) -> str:
    """`part` of `whole`, to a tenth."""
    return f"{100 * part / whole:,.1f} %" if whole else NOTHING


def value_text(name: str, value: object) -> str:
    """A counter or setting in the unit of its name: `peak_bytes`, `op_ns`, `replays`."""
    if isinstance(value, float) and math.isfinite(value):
        return f"{Decimal(repr(value)):,f}"  # all of its digits, and no exponent
    if isinstance(value, bool) or not isinstance(value, int):
        return NOTHING if value is None else str(value)
    if name.endswith("bytes") and value >= 1024:
        return f"{count_text(value)} ({format_bytes(value)})"
    if name.endswith("_ns") and value >= 1000:
        return f"{count_text(value)} ({format_ns(value)})"
    return count_text(value)
