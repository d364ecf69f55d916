"""Options of recoup that stand after the script, and so reach the script."""

import argparse
import contextlib
import re
from collections.abc import Iterator, Sequence

_UNKNOWN = re.compile("unrecogni[sz]ed|unknown|no such|not used|unexpected", re.IGNORECASE)


def misplaced_options(after: Sequence[str], own_options: Sequence[str]) -> list[str]:
    """Those of `own_options` that are among the words after the script."""
    return [name for name in options_in(after) if name in own_options]


def options_in(words: Sequence[str]) -> list[str]:
    """The names of the long options among the words."""
    return [word.partition("=")[0] for word in words if word.startswith("--")]


def hint(name: str, script: str) -> str:
    """What to do with an option that the script does not know."""
    return (
        f"recoup: {name} stands after {script}, which does not know it; to give it to recoup, put "
        f"it before {script}"
    )


def refused_option(error: BaseException, names: Sequence[str]) -> str | None:
    """The first of `names` that the program does not know, by what it ended with.

    A program may have options of the same names as recoup. So an option is misplaced for certain
    only where the program's error says that it is unknown: argparse's, or the text of an exception.
    """
    for text in filter(_UNKNOWN.search, _texts(error)):
        for name in names:
            if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text):
                return name
    return None


def _texts(error: BaseException | None) -> Iterator[str]:
    """Of the error, and of those during which it was raised."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        with contextlib.suppress(Exception):  # it may have any __str__
            yield str(error)
        yield from _said_by_argparse(error)
        error = error.__cause__ or error.__context__


def _said_by_argparse(error: BaseException) -> Iterator[str]:
    """argparse prints its message and ends the program with no more than an exit code."""
    traceback = error.__traceback__
    while traceback is not None:
        frame = traceback.tb_frame
        if frame.f_code is argparse.ArgumentParser.error.__code__:
            yield str(frame.f_locals["message"])
        traceback = traceback.tb_next
