"""The flags of `recoup run` as arguments of `recoup.budget`, and its errors as errors of flags."""

import argparse
import inspect
import math
import re
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, Protocol

import recoup
from recoup import gpus
from recoup.budgets import Budget
from recoup.run import free_bytes

FLAGS: Mapping[str, str] = types.MappingProxyType(
    {
        "budget": "--budget",
        "device": "--device",
        "policy": "--policy",
        "planning": "--planning",
        "max_replay_ratio": "--max-replay-ratio",
        "verify": "--verify",
        "spill": "--spill",
        "spill_dir": "--spill-dir",
        "trace": "--trace",
        "stacks": "--stacks",
    }
)
"""Arguments of `recoup.budget` that have a flag of their own; `--option` sets the others."""

# `Run.decisions()` is asked for inside a program, and this run is not the program's; the others
# follow from the files that are to be written.
_NOT_FROM_OUTSIDE = ("decisions", "modules", "timeline")
_HINTS: Mapping[str, Any] = typing.get_type_hints(recoup.budget)
OPTIONS: tuple[str, ...] = tuple(
    name
    for name in inspect.signature(recoup.budget).parameters
    if name not in FLAGS and name not in _NOT_FROM_OUTSIDE
)
"""What `--option` sets."""


class Fail(Protocol):
    """Ends the process with one line about wrong arguments."""

    def __call__(self, message: str) -> NoReturn: ...


def make_budget(options: argparse.Namespace) -> tuple[Budget, dict[str, Any]]:
    """The scope that the flags ask for, and all arguments that it was made with.

    What is wrong ends the process with a line that names the flag.
    """
    fail: Fail = options.fail
    given = _given(options, fail)
    try:
        device = gpus.parse_device(given.pop("device", "cpu"))
    except ValueError:
        fail(f"--device must be cpu, or a GPU such as cuda:0; got {options.device!r}")
    except RuntimeError as error:
        fail(f"--device {options.device}: {error}")
    size = given.pop("budget", None)
    call = inspect.signature(recoup.budget).bind(
        free_bytes(device) if size is None else size, device=device, **given
    )
    try:
        budget = recoup.budget(*call.args, **call.kwargs)
    except (RuntimeError, ValueError) as error:
        fail(_with_flags(str(error)))
    call.apply_defaults()
    settings = {name: _plain(value) for name, value in call.arguments.items()}
    return budget, settings


def _given(options: argparse.Namespace, fail: Fail) -> dict[str, Any]:
    """The arguments that were on the command line; the others have the defaults of `budget`."""
    given = {
        name: _parse(flag, _HINTS[name], value, fail) if isinstance(value, str) else value
        for name, flag in FLAGS.items()
        if (value := getattr(options, name)) is not None
    }
    if "budget" not in given and "trace" not in given:
        fail("the following arguments are required: --budget")
    if "spill_dir" in given and "spill" not in given:
        fail("--spill-dir is of a second tier: --spill SIZE")
    for text in options.option:
        name, equals, value = text.partition("=")
        if name in FLAGS:
            fail(f"--option {name}: it has a flag of its own, {FLAGS[name]}")
        if not equals or name not in OPTIONS:
            fail(f"--option must be NAME=VALUE, with one of {', '.join(OPTIONS)}; got {text!r}")
        if name in given:
            fail(f"--option {name} is given twice")
        given[name] = _parse(f"--option {name}", _HINTS[name], value, fail)
    if options.report is not None:
        given["modules"] = True
    if options.timeline is not None or is_page(options.report):
        given["timeline"] = True
    return given


def is_page(report: Path | None) -> bool:
    """Whether a report is to be a page, and not JSON."""
    return report is not None and report.suffix.lower() in (".html", ".htm")


def _parse(flag: str, hint: Any, text: str, fail: Fail) -> Any:
    """`text` as a value of the type `hint`. What is text to Python too, `recoup.budget` checks."""
    union = isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
    kinds = typing.get_args(hint) if union else (hint,)
    optional = types.NoneType in kinds
    if optional and text.lower() == "none":
        return None
    if str in kinds or typing.get_origin(hint) is typing.Literal:
        return text
    or_none = ", or none" if optional else ""
    if bool in kinds:
        if text.lower() not in ("true", "false"):
            fail(f"{flag} must be true or false{or_none}; got {text!r}")
        return text.lower() == "true"
    kind, what = (int, "a whole number") if int in kinds else (float, "a number")
    try:
        return kind(text)
    except ValueError:
        fail(f"{flag} must be {what}{or_none}; got {text!r}")


def _with_flags(message: str) -> str:
    """The errors of `recoup.budget` begin with the name of the argument."""
    name = re.match(r"\w*", message)
    assert name is not None
    if name[0] in FLAGS:
        return FLAGS[name[0]] + message[name.end() :]
    return f"--option {message}" if name[0] in OPTIONS else message


def _plain(value: Any) -> Any:
    """For JSON, which has no infinity."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, bool | int | float | str | None) else str(value)
