"""Options of recoup that the user put after the script, which therefore gets them."""

import argparse
import contextlib
import re
from collections.abc import Iterator, Sequence

_UNKNOWN = re.compile("unrecogni[sz]ed|unknown|no such|not used|unexpected", re.IGNORECASE)


def misplaced_options(after: Sequence[str], own_options: Sequence[str]) -> list[str]:
    """The names in `own_options` that occur among the words after the script."""
    return [name for name in options_in(after) if name in own_options]


def options_in(words: Sequence[str]) -> list[str]:
    """The names of the long options among the words."""
    return [word.partition("=")[0] for word in words if word.startswith("--")]


def hint(name: str, script: str) -> str:
    """The line that tells the user where to put an option that the script refused."""
    return (
        f"recoup: {name} comes after {script}, which does not know it; if it is an option of "
        f"recoup, put it before {script}"
    )


def refused_option(error: BaseException, names: Sequence[str]) -> str | None:
    """The first of `names` that the program's error calls unknown; None if there is none.

    A program may have options with the same names as recoup's. So an option is known to be
    misplaced only if argparse or the text of an exception says that the program does not know it.
    """
    for text in filter(_UNKNOWN.search, _texts(error)):
        for name in names:
            if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text):
                return name
    return None


def _texts(error: BaseException | None) -> Iterator[str]:
    """The texts of the error, of its causes and of its contexts."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        with contextlib.suppress(Exception):  # a program's __str__ may raise
            yield str(error)
        yield from _said_by_argparse(error)
        error = error.__cause__ or error.__context__


def _said_by_argparse(error: BaseException) -> Iterator[str]:
    """The message that argparse printed: its SystemExit has only an exit code."""
    traceback = error.__traceback__
    while traceback is not None:
        frame = traceback.tb_frame
        if frame.f_code is argparse.ArgumentParser.error.__code__:
            yield str(frame.f_locals["message"])
        traceback = traceback.tb_next
