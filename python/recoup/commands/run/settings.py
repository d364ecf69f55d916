"""The flags of `recoup run` as arguments of `recoup.budget`, and its errors as errors of flags."""

import argparse
import inspect
import math
import re
import warnings
from typing import Any

import recoup
from recoup import gpus
from recoup._memory.device_memory import free_bytes
from recoup.budgets import Budget
from recoup.commands.budget_arguments import FLAGS, OPTIONS
from recoup.commands.run.arguments import is_page as is_page


def make_budget(options: argparse.Namespace) -> tuple[Budget, dict[str, Any]]:
    """The scope that the flags ask for, and all arguments that it was made with.

    What is wrong ends the process with a line that names the flag.
    """
    fail = options.fail
    given = _given(options)
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
        with warnings.catch_warnings():
            # What it would warn of, `recoup run` has said.
            warnings.simplefilter("ignore", recoup.RecoupWarning)
            budget = recoup.budget(*call.args, **call.kwargs)
    except (RuntimeError, ValueError) as error:
        fail(_with_flags(str(error)))
    call.apply_defaults()
    settings = {name: _plain(value) for name, value in call.arguments.items()}
    return budget, settings


def _given(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments that were on the command line; the others have the defaults of `budget`."""
    given = {name: value for name in FLAGS if (value := getattr(options, name)) is not None} | dict(
        options.option
    )
    if options.report is not None:
        given["modules"] = True
    if options.timeline is not None or is_page(options.report):
        given["timeline"] = True
    return given


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
