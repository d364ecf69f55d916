"""Types of the values of options. Each error message continues the name of the option."""

import argparse
import contextlib
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from recoup._memory.fractions import ALSO_ALLOWED, parse_fraction
from recoup._memory.share_group import check_share
from recoup._memory.sizes import parse_bytes
from recoup._reporting.files import check_writable, utf8_name
from recoup.hints import did_you_mean
from recoup.known_names import ONLY_SIMULATED, policy_names

_LEAST_LENGTH = 2
"""Of recorded inputs: every size is divisible by 1, so it says nothing."""
_T = TypeVar("_T")
Parse = Callable[[str], _T]
"""A function that argparse accepts as the type of an argument."""


def wrong(message: str) -> argparse.ArgumentTypeError:
    """The error that a type raises; `message` continues the name of the option."""
    return argparse.ArgumentTypeError(message)


def choice(names: Sequence[str], *, elsewhere: Mapping[str, str] | None = None) -> Parse[str]:
    """One of `names`. elsewhere: other names that a user may expect, each with a hint."""

    def parse(text: str) -> str:
        try:
            check_choice(text, names, elsewhere=elsewhere)
        except ValueError as error:
            raise wrong(str(error)) from None
        return text

    return parse


def check_choice(
    text: str, names: Sequence[str], *, elsewhere: Mapping[str, str] | None = None
) -> None:
    """Raises ValueError, "... is not one of ...", if `text` is not one of `names`."""
    if text in names:
        return
    where = (elsewhere or {}).get(text)
    hint = did_you_mean(text, names) if where is None else f"; {where}"
    raise ValueError(f"{text!r} is not one of {', '.join(names)}{hint}")


def share_group(text: str) -> str:
    """The name of a group of processes that share a budget."""
    try:
        check_share(text)
    except ValueError as error:
        raise wrong(str(error).removeprefix("share ")) from None
    return text


def policy(*others: str) -> Parse[str]:
    """A policy of live runs, or one of `others`."""
    live = policy_names()
    only = {
        name: f"{name} {ONLY_SIMULATED}"
        for name in policy_names(simulated=True)
        if name not in live
    }
    return choice([*live, *others], elsewhere=only)


def module_name(text: str) -> str:
    """The name of a module, which may have wildcards."""
    if not text:
        raise wrong("must be the name of a module such as transformer.wte; got ''")
    return text


def whole(least: int, most: int | None = None) -> Parse[int]:
    """A whole number from `least` to `most`, inclusive."""
    if most is None:
        allowed = f"must be {least} or more"
    else:
        allowed = f"must be a whole number from {least} to {most}"

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise wrong(f"must be a whole number; got {text!r}") from None
        if number < least or (most is not None and number > most):
            raise wrong(f"{allowed}; got {number}")
        return number

    return parse


def real(
    allowed: str, least: float, most: float = math.inf, *, above: bool = False
) -> Parse[float]:
    """A number from `least` to `most`. above: excludes `least`.

    allowed: the bounds in words for the error message, such as "a number above 0".
    """

    def parse(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not least <= number <= most or (above and number == least):
            raise wrong(f"must be {allowed}; got {text!r}")
        return number

    return parse


def lengths(text: str) -> tuple[int, int]:
    """RECORDED:LONGEST: the length of the recorded inputs, and that of the longest input."""
    allowed = "it must be RECORDED:LONGEST, such as 127:512"
    found = re.fullmatch("([0-9]+):([0-9]+)", text)
    if found is None:
        raise wrong(f"{text!r} is not two lengths; {allowed}")
    recorded, longest = int(found[1]), int(found[2])
    if recorded < _LEAST_LENGTH:
        raise wrong(f"{text!r} has a recorded length below {_LEAST_LENGTH}; {allowed}")
    if longest < recorded:
        raise wrong(f"{text!r} has a longest length below the recorded one; {allowed}")
    return recorded, longest


def truth(text: str) -> bool:
    """true or false."""
    if text.lower() not in ("true", "false"):
        raise wrong(f"must be true or false; got {text!r}")
    return text.lower() == "true"


def size(text: str) -> str:
    """A size in bytes, with or without a unit. Stays text: reports show it as given."""
    return _checked(text, also="")


def budget(text: str) -> str:
    """A size, a percentage such as 60%, or auto. Stays text."""
    try:
        fraction = parse_fraction(text, name="")
    except ValueError as error:
        raise wrong(str(error).strip()) from None
    return _checked(text, also=ALSO_ALLOWED) if fraction is None else text


def _checked(text: str, *, also: str) -> str:
    try:
        parse_bytes(text, name="", also=also)
    except ValueError as error:
        raise wrong(str(error).strip()) from None
    return text


def or_none(parse: Parse[_T]) -> Parse[_T | None]:
    """A value that `parse` accepts, or none."""

    def parse_or_none(text: str) -> _T | None:
        if text.lower() == "none":
            return None
        try:
            return parse(text)
        except argparse.ArgumentTypeError as error:
            allowed, got, rest = str(error).partition("; got ")
            raise wrong(f"{allowed}, or none{got}{rest}") from None

    return parse_or_none


def device(text: str) -> str:
    """The name of a device. Checks only its form: whether it exists only PyTorch knows."""
    if not re.fullmatch(r"[a-z_0-9]+(:[0-9]+)?", text):
        raise wrong(f"must be cpu or a GPU such as cuda:0; got {text!r}")
    return text


def directory(text: str) -> str:
    """The path of a directory, which need not exist."""
    if not text or "\0" in text:
        raise wrong(f"must be the path of a directory; got {text!r}")
    return text


def file_to_write(*suffixes: str) -> Parse[Path]:
    """A file in an existing writable directory; if `suffixes` are given, with one of them."""

    def parse(text: str) -> Path:
        path = Path(text)
        if suffixes and path.suffix not in suffixes:
            raise wrong(f"must end in {' or '.join(suffixes)}; got {text!r}")
        try:
            check_writable(path)
        except OSError as error:
            raise wrong(f"cannot be written: {error}") from None
        return path

    return parse


def file_to_read(text: str) -> str:
    """A file that can be opened and whose name is UTF-8."""
    try:
        utf8_name(text)
        with open(text, "rb"):
            return text
    except ValueError as error:
        raise wrong(f"cannot be read: {error}") from None
    except OSError as error:
        raise wrong(f"cannot be read: {error}{similar_file(error)}") from None


def similar_file(error: OSError) -> str:
    """'; did you mean ...?' with a file whose name is similar to the missing one; else empty."""
    if not isinstance(error, FileNotFoundError):
        return ""
    folder, name = os.path.split(os.fspath(error.filename))
    with contextlib.suppress(OSError):
        return did_you_mean(name, os.listdir(folder or "."))
    return ""


def add_trace_argument(parser: argparse.ArgumentParser) -> None:
    """Adds `trace`, a file for `recoup.offline.dtr_log.read_any_trace`."""
    parser.add_argument(
        "trace",
        type=file_to_read,
        metavar="TRACE",
        help="a trace of `recoup run --trace`, or a log of the DTR authors (.log, .log.gz)",
    )
