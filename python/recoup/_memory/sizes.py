"""Parsing and formatting of sizes in bytes."""

import operator
import re

_DECIMAL = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BINARY = {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
# As in Docker.
_LETTERS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_UNITS = _DECIMAL | _BINARY | _LETTERS
# More than any machine has; sums of a few such sizes fit in 64 bits.
MOST_BYTES = 1 << 62
_PATTERN = re.compile(r"([+-]?)([0-9]{1,100})(?:\.([0-9]{1,100}))?\s*([A-Za-z]*)")
_ALLOWED = (
    "a whole number of bytes above 0, or a number with one of the units "
    "B, KB, MB, GB, TB, KiB, MiB, GiB, TiB, k, m, g, t, such as '4GiB', '1.5 GiB' or '500MB'"
)
# No training fits in less: a smaller number without a unit is probably a mistake.
_LEAST_BARE_BYTES = 64 * 2**10


def parse_bytes(
    value: int | str,
    *,
    name: str = "budget",
    also: str = "",
    limit_bytes: int | None = None,
    limit_source: str = "",
) -> int:
    """The size in bytes that `value` states; a fraction of a byte is dropped.

    KB is 1,000 bytes, KiB and k are 1,024; case does not matter. Error messages begin with `name`,
    and contain `also` (other forms that the caller accepts) and `limit_source` (the file that sets
    the limit).

    Raises ValueError, which says what is allowed, for 0, a negative number, a float, an unknown
    unit, any other text, more than `MOST_BYTES`, and more than `limit_bytes`; TypeError for a bool
    and for other types than numbers and text.
    """
    it_must_be = f"it must be {_ALLOWED}{also}"
    if isinstance(value, bool):
        raise TypeError(f"{name} is the bool {value}; {it_must_be}")
    if isinstance(value, float):
        raise ValueError(f"{name} is the float {value!r}; {it_must_be}")
    if isinstance(value, str):
        try:
            count = _parse_text(value)
        except ValueError as error:
            raise ValueError(f"{name} {value!r} {error}; {it_must_be}") from None
    elif isinstance(value, int):
        count = value
    else:
        raise TypeError(f"{name} has the type {type(value).__name__}; {it_must_be}")
    if count <= 0:
        raise ValueError(f"{name} {value!r} is not above 0; {it_must_be}")
    if count > MOST_BYTES:
        raise ValueError(f"{name} must be at most {MOST_BYTES} bytes (4 EiB); got {value!r}")
    if limit_bytes is not None and count > limit_bytes:
        size = f"{limit_bytes} bytes ({format_bytes(limit_bytes)})"
        most = f"the memory of its device, {size}"
        if limit_source:
            most = f"the memory that this process may take, {size} according to {limit_source}"
        raise ValueError(f"{name} must be at most {most}; got {value!r}")
    return count


def _parse_text(text: str) -> int:
    """The size in bytes. Raises ValueError, whose message continues the text."""
    match = _PATTERN.fullmatch(text.strip())
    if match is None:
        raise ValueError("is not a size")
    sign, whole, fraction, unit = match.groups(default="")
    if unit and unit.upper() not in _UNITS:
        raise ValueError(f"is not a size: {unit!r} is not a unit")
    if fraction and not unit:
        raise ValueError("is a fraction without a unit")
    # Integers, because a float would round large sizes.
    scaled = int(whole + fraction) * _UNITS[unit.upper() or "B"]
    count: int = scaled // 10 ** len(fraction)
    return -count if sign == "-" else count


def missing_unit(value: int | str, name: str = "budget") -> str | None:
    """A question about a size below 64 KiB that has no unit; None for any other value.

    4 means 4 bytes, but a user who writes it probably means another unit.
    name: what the size is of.
    """
    text = str(value).strip()
    if not text.isdecimal() or not 0 < int(text) < _LEAST_BARE_BYTES:
        return None
    meant = f"{text}GiB" if int(text) < 1024 else f"{text}MiB"
    return f"a {name} of {text} bytes; did you mean {meant}?"


def check_whole(value: object, name: str, least: int, most: int) -> int:
    """Returns `value` if it is a whole number from `least` to `most`.

    Raises ValueError or TypeError that says what is allowed.
    """
    allowed = f"{name} must be a whole number from {least} to {most}"
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{allowed}; got {type(value).__name__}")
    number = operator.index(value)
    if not least <= number <= most:
        raise ValueError(f"{allowed}; got {number}")
    return number


def format_bytes(count: int) -> str:
    """`count` bytes in binary units with at most three digits: '1.5 GiB'."""
    if abs(count) < 1024:
        return f"{count} B"
    size = float(count)
    units = ["KiB", "MiB", "GiB", "TiB"]
    unit = units.pop(0)
    size /= 1024
    # A size that would be rounded up to 1024 gets the next unit.
    while units and abs(size) >= 1023.5:
        unit = units.pop(0)
        size /= 1024
    return f"{size:.0f} {unit}" if abs(size) >= 99.95 else f"{size:.1f} {unit}"


def short_size(count: int) -> str:
    """The least size of at most three digits that is not below `count` bytes.

    The result is text for `parse_bytes`, such as '1.4GiB' or '512MiB', and exceeds `count` by less
    than 1 %.
    """
    for power, unit in enumerate(("B", "KiB", "MiB", "GiB", "TiB")):
        for decimals in (2, 1, 0) if power > 0 else (0,):
            digits = -(-count * 10**decimals // 1024**power)
            if digits < 1000:
                text = f"{digits / 10**decimals:.{decimals}f}"
                return (text.rstrip("0").rstrip(".") if decimals > 0 else text) + unit
    return f"{-(-count // 1024**4)}TiB"


_RANGE = re.compile(r"([0-9]{1,20})\.\.([0-9]{1,20})(?::([0-9]{1,20}))?")
_MOST_PERCENT = 10_000  # bounds the number of runs: one for each percent


def percent_range(text: str) -> range | None:
    """The percents of FROM..TO:STEP, both ends included, in that direction; None for other text.

    Raises ValueError that says what is allowed.
    """
    found = _RANGE.fullmatch(text)
    if found is None:
        return None
    first, last, step = int(found[1]), int(found[2]), int(found[3] or 1)
    if max(first, last) > _MOST_PERCENT:
        raise ValueError(f"a budget must be at most {_MOST_PERCENT} %; got {text!r}")
    if step < 1 or last < 1:
        raise ValueError(
            f"a range of budgets must end at 1 % or more, in steps of 1 or more; got {text!r}"
        )
    return range(first, last - 1, -step) if first >= last else range(first, last + 1, step)
