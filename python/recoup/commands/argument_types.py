"""What the values of options may be. Each message goes on from the name of the option."""

import argparse
import contextlib
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from recoup._memory.share_text import ALSO_ALLOWED, parse_share
from recoup._memory.sizes import parse_bytes
from recoup._reporting.files import check_writable, utf8_name
from recoup.commands.parser import did_you_mean
from recoup.known_names import policy_names

_T = TypeVar("_T")
Parse = Callable[[str], _T]
"""What argparse takes for the type of an argument."""


def wrong(message: str) -> argparse.ArgumentTypeError:
    """To be raised by a type: "must be ...; got ..."."""
    return argparse.ArgumentTypeError(message)


def choice(names: Sequence[str], *, elsewhere: Mapping[str, str] | None = None) -> Parse[str]:
    """One of `names`. elsewhere: other names that a user may expect, and where they are taken."""

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
    """Raises ValueError, "must be one of ...", when `text` is none of the names."""
    if text in names:
        return
    where = (elsewhere or {}).get(text)
    hint = did_you_mean(text, names) if where is None else f"; {where}"
    raise ValueError(f"must be one of {', '.join(names)}; got {text!r}{hint}")


def policy(*others: str) -> Parse[str]:
    """A policy that a run may have, or one of `others`."""
    live = policy_names()
    only = {
        name: f"{name} needs to know the future, and is for `recoup simulate` only"
        for name in policy_names(simulated=True)
        if name not in live
    }
    return choice([*live, *others], elsewhere=only)


def whole(least: int, most: int | None = None) -> Parse[int]:
    """A whole number from `least` to `most`, both included."""
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
    """A number from `least` to `most`; above: `least` itself is not allowed.

    allowed: these bounds in words, as "a number above 0".
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


def truth(text: str) -> bool:
    """true or false."""
    if text.lower() not in ("true", "false"):
        raise wrong(f"must be true or false; got {text!r}")
    return text.lower() == "true"


def size(text: str) -> str:
    """A size in bytes, with a unit or without. Stays text: reports show it as it was given."""
    return _checked(text, also="")


def budget(text: str) -> str:
    """A size, a share such as 60%, or auto. Stays text."""
    try:
        share = parse_share(text, name="")
    except ValueError as error:
        raise wrong(str(error).strip()) from None
    return _checked(text, also=ALSO_ALLOWED) if share is None else text


def _checked(text: str, *, also: str) -> str:
    try:
        parse_bytes(text, name="", also=also)
    except ValueError as error:
        raise wrong(str(error).strip()) from None
    return text


def or_none(parse: Parse[_T]) -> Parse[_T | None]:
    """What `parse` takes, or none."""

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
    """Its form. Which devices there are PyTorch knows."""
    if not re.fullmatch(r"[a-z_0-9]+(:[0-9]+)?", text):
        raise wrong(f"must be cpu, or a GPU such as cuda:0; got {text!r}")
    return text


def directory(text: str) -> str:
    """A path, of a directory that need not be there."""
    if not text or "\0" in text:
        raise wrong(f"must be the path of a directory; got {text!r}")
    return text


def file_to_write(*suffixes: str) -> Parse[Path]:
    """A file in a directory that exists and may be written to; with one of `suffixes`, if any."""

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
    """A file that can be opened, whose name is UTF-8."""
    try:
        utf8_name(text)
        with open(text, "rb"):
            return text
    except ValueError as error:
        raise wrong(f"cannot be read: {error}") from None
    except OSError as error:
        raise wrong(f"cannot be read: {error}{similar_file(error)}") from None


def similar_file(error: OSError) -> str:
    """'; did you mean ...?' with a file whose name is almost that of one that is not there."""
    if not isinstance(error, FileNotFoundError):
        return ""
    folder, name = os.path.split(os.fspath(error.filename))
    with contextlib.suppress(OSError):
        return did_you_mean(name, os.listdir(folder or "."))
    return ""


def add_trace_argument(parser: argparse.ArgumentParser) -> None:
    """`trace`: what `recoup.offline.dtr_log.read_any_trace` reads."""
    parser.add_argument(
        "trace",
        type=file_to_read,
        metavar="TRACE",
        help="a file of `recoup run --trace`, or a log of the DTR authors (.log, .log.gz)",
    )
