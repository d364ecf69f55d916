"""The arguments of budgets and of the engine that several commands have.

Their types and defaults are those of the engine's option table, `known_names.option_table`.
"""

import argparse
import dataclasses
import functools
import re
import types
from collections.abc import Iterable, Mapping
from typing import Any

from recoup.commands.argument_types import (
    Parse,
    choice,
    device,
    directory,
    module_name,
    or_none,
    policy,
    real,
    size,
    truth,
    whole,
    wrong,
)
from recoup.hints import did_you_mean
from recoup.known_names import option_table, policies
from recoup.options import Options

ARGUMENTS = (
    "budget", "device", "policy", "check_replays", "spill", "spill_dir", "adapt", "share", "trace",
)  # fmt: skip
"""Arguments of `recoup.budget` that have their own flag."""
OWN_FLAGS = ("planning", "max_replay_ratio", "max_slowdown")
"""Fields of `recoup.Options` that have their own flag; `--option` sets the others."""
OPTIONS = tuple(field.name for field in dataclasses.fields(Options) if field.name not in OWN_FLAGS)
_TYPES: Mapping[str, Parse[Any]] = types.MappingProxyType(
    {
        "policy": policy(),
        "device": device,
        "spill": size,
        "spill_dir": directory,
        "block_size": or_none(size),
        "page_window": or_none(size),
    }
)
"""Types of arguments that the option table has in another form, or not at all."""


def flag_of(name: str) -> str:
    """The flag of an argument: --max-slowdown of max_slowdown."""
    return f"--{name.replace('_', '-')}"


@functools.cache
def option_type(name: str) -> Parse[Any]:
    """The type of an argument, made from what the option table allows."""
    if name in _TYPES:
        return _TYPES[name]
    allowed = option_table()[name].allowed
    words = re.sub(",? or None$", "", allowed)
    bounds = [each.replace(",", "") for each in re.findall(r"[\d.,]*\d", words)]
    parse: Parse[Any]
    if words.startswith("True"):
        parse = truth
    elif words.startswith("one of "):
        parse = choice(words.removeprefix("one of ").split(", "))
    elif words.startswith("a whole number"):
        parse = whole(*map(int, bounds))
    elif words.endswith("or 0 for no bound"):
        parse = real(words, 0)
    else:
        parse = real(words.replace("four numbers", "a number"), *map(float, bounds))
    return parse if words == allowed else or_none(parse)


def add_option(
    parser: argparse.ArgumentParser,
    name: str,
    metavar: str | tuple[str, ...],
    help: str,
    **others: Any,
) -> None:
    """Adds the flag of an argument. Its help ends with its default in the option table, if any."""
    row = option_table().get(name)
    if row is not None and row.default not in (None, "", False):
        values = row.default if isinstance(row.default, list) else [row.default]
        shown = (each if isinstance(each, str) else f"{each:,g}" for each in values)
        help = f"{help} (default: {' '.join(shown)})"
    others = {"type": option_type(name), "metavar": metavar} | others
    parser.add_argument(flag_of(name), help=help, **others)


def add_tuning(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `recoup.Options` that live and simulated runs have."""
    add_option(
        parser,
        "planning",
        "off|wait|background",
        help="when to plan the evictions of a step that repeats: never, at its end, or on another "
        "thread",
    )
    add_option(
        parser,
        "max_replay_ratio",
        "X",
        help="out of budget if restoring the arguments of an op costs more than X times all "
        "recorded ops; 0: no bound",
    )
    parser.add_argument(
        "--option",
        action="append",
        type=lambda text: option_setting(text, parser),
        default=[],
        metavar="NAME=VALUE",
        help=f"a field of recoup.Options: {', '.join(OPTIONS)}",
    )


def with_option(message: str) -> str:
    """An error whose first word is a field that `--option` sets, with that flag before it."""
    return f"--option {message}" if message.partition(" ")[0] in OPTIONS else message


def option_setting(text: str, parser: argparse.ArgumentParser) -> tuple[str, Any]:
    """The type of `--option` of a command: splits NAME=VALUE into the name and the parsed value."""
    name, equals, value = text.partition("=")
    if name in (*ARGUMENTS, *OWN_FLAGS):
        flags = [flag for action in parser._actions for flag in action.option_strings]
        if flag_of(name) in flags:
            raise wrong(f"{name} has its own flag: use {flag_of(name)}")
        raise wrong(f"{name} has no effect in {parser.prog}{did_you_mean(flag_of(name), flags)}")
    if not equals or name not in OPTIONS:
        hint = "" if name in OPTIONS else did_you_mean(name, OPTIONS)
        raise wrong(
            f"must be NAME=VALUE, where NAME is one of {', '.join(OPTIONS)}; got {text!r}{hint}"
        )
    try:
        return name, option_type(name)(value)
    except argparse.ArgumentTypeError as error:
        raise wrong(f"{name} {error}") from None


def check_tuning(options: argparse.Namespace, chosen: Iterable[str]) -> None:
    """Rejects settings of `--option` that conflict. chosen: the policies of the runs."""
    names = [name for name, _ in options.option]
    for name in names:
        if names.count(name) > 1:
            options.fail(f"--option {name} was given twice")
    with_order = [policy.name for policy in policies() if policy.kinetic]
    without = next((policy for policy in chosen if policy not in with_order), None)
    if dict(options.option).get("kinetic") and without is not None:
        options.fail(
            "--option kinetic needs a policy that keeps its candidates in order: "
            f"{', '.join(with_order)}; got {without!r}"
        )


def tuning_of(options: argparse.Namespace) -> dict[str, Any]:
    """The fields of `recoup.Options` that were given."""
    flags = {name: getattr(options, name, None) for name in OWN_FLAGS}
    given = {name: value for name, value in flags.items() if value is not None}
    return given | dict(options.option)


def check_spill_options(options: argparse.Namespace) -> None:
    """Rejects options of a spill tier without `--spill`."""
    for name in ("spill_dir", "spill_only", "spill_bandwidth", "spill_request_ns"):
        if getattr(options, name, None) is not None and options.spill is None:
            options.fail(f"{flag_of(name)} needs a spill tier: add --spill SIZE")


def add_rules(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that make `recoup.Rules`; both may be repeated."""
    parser.add_argument(
        "--keep",
        action="append",
        type=module_name,
        metavar="MODULE",
        help="do not evict the values of MODULE and its submodules, such as transformer.wte or "
        "'transformer.h.[0-3]'; may be repeated",
    )
    parser.add_argument(
        "--spill-only",
        action="append",
        type=module_name,
        metavar="MODULE",
        help="of all modules' values, spill only those of MODULE and its submodules; may be "
        "repeated",
    )


def rule_flags(options: argparse.Namespace) -> list[str]:
    """The flags of `add_rules` that were given, for a command of their own."""
    return [
        word
        for flag, names in (("--keep", options.keep), ("--spill-only", options.spill_only))
        for name in names or ()
        for word in (flag, name)
    ]
