"""Converts the flags of `recoup run` to arguments of `recoup.budget`, and errors back to flags."""

import argparse
import dataclasses
import inspect
import math
import re
import warnings
from collections.abc import Mapping
from typing import Any

import recoup
from recoup import gpus
from recoup._memory.device_memory import free_bytes
from recoup.budgets import Budget
from recoup.commands.budget_arguments import ARGUMENTS, OWN_FLAGS, flag_of, tuning_of, with_option
from recoup.commands.run.arguments import is_page as is_page


def make_budget(options: argparse.Namespace) -> tuple[Budget, dict[str, Any]]:
    """Returns the scope that the flags describe, and all arguments that it was made with.

    An error ends the process with a line that names the flag.
    """
    fail = options.fail
    given = _given(options)
    try:
        device = gpus.parse_device(given.pop("device", "cpu"))
    except ValueError:
        fail(f"--device must be cpu or a GPU such as cuda:0; got {options.device!r}")
    except RuntimeError as error:
        fail(f"--device {options.device}: {error}")
    size = given.pop("budget", None)
    size = free_bytes(device) if size is None else size
    tuning = recoup.Options(**tuning_of(options))
    try:
        with warnings.catch_warnings():
            # `recoup run` has printed its warnings already.
            warnings.simplefilter("ignore", recoup.RecoupWarning)
            budget = recoup.budget(size, device=device, options=tuning, **given)
    except (RuntimeError, ValueError) as error:
        fail(_with_flags(str(error), getattr(options, "sources", {})))
    arguments = inspect.signature(recoup.budget).parameters
    defaults = {name: each.default for name, each in arguments.items() if name != "options"}
    settings = defaults | {"budget": size, "device": device} | given | dataclasses.asdict(tuning)
    return budget, {name: _plain(value) for name, value in settings.items()}


def rules_of(options: argparse.Namespace) -> recoup.Rules | None:
    """The rules that the flags of `add_rules` name; None: no flag was given."""
    if not options.keep and not options.spill_only:
        return None
    return recoup.Rules(keep=options.keep or (), spill_only=options.spill_only)


def why_not_entered(error: Exception, spill: int | None) -> str:
    """The sentence for a scope that cannot be entered: too little memory, or no disk for a tier."""
    flag = "--budget" if spill is None else "--spill"
    said = str(error.strerror) if isinstance(error, OSError) else str(error)
    return f"{flag}: {said.removeprefix('recoup: ')}"


def _given(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments given on the command line; the others keep the defaults of `budget`."""
    given = {name: value for name in ARGUMENTS if (value := getattr(options, name)) is not None}
    profile = []
    if options.report is not None:
        profile.append("modules")
    if options.lines:
        profile.append("lines")
    if options.timeline is not None or is_page(options.report):
        profile.append("timeline")
    if (rules := rules_of(options)) is not None:
        given["rules"] = rules
    return given | ({"profile": profile} if profile else {})


def _with_flags(message: str, sources: Mapping[str, str]) -> str:
    """Replaces the argument at the start of an error of `recoup.budget` by its flag.

    sources: what has set arguments that are not on the command line.
    """
    name = re.match(r"\w*", message)
    assert name is not None
    if name[0] in (*ARGUMENTS, *OWN_FLAGS):
        return sources.get(name[0], flag_of(name[0])) + message[name.end() :]
    return with_option(message)


def _plain(value: Any) -> Any:
    """A value that JSON can represent: it has no infinity."""
    if isinstance(value, list):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, bool | int | float | str | None) else str(value)
