"""The arguments of `recoup.budget` and the fields of `recoup.Options` on the command line.

tests/python/cli/test_run_flags.py compares this file with both. They are not imported here, because
that would load PyTorch.
"""

import argparse
import types
from collections.abc import Mapping
from typing import Any

from recoup._memory.sizes import MOST_BYTES
from recoup.commands.argument_types import (
    Parse,
    choice,
    module_name,
    or_none,
    real,
    size,
    truth,
    whole,
    wrong,
)
from recoup.hints import did_you_mean

FLAGS: Mapping[str, str] = types.MappingProxyType(
    {
        "budget": "--budget",
        "device": "--device",
        "policy": "--policy",
        "check_replays": "--check-replays",
        "spill": "--spill",
        "spill_dir": "--spill-dir",
        "adapt": "--adapt",
        "share": "--share",
        "trace": "--trace",
    }
)
"""Arguments of `recoup.budget` that have their own flag."""

OPTION_FLAGS: Mapping[str, str] = types.MappingProxyType(
    {
        "planning": "--planning",
        "max_replay_ratio": "--max-replay-ratio",
        "max_slowdown": "--max-slowdown",
    }
)
"""Fields of `recoup.Options` that have their own flag; `--option` sets the others."""

OPTION_TYPES: Mapping[str, Parse[Any]] = types.MappingProxyType(
    {
        "small_filter": or_none(truth),
        "sampling": or_none(truth),
        "kinetic": or_none(truth),
        "seed": whole(0, 2**64 - 1),
        "usefulness": truth,
        "reuse_operands": truth,
        "replay_order": choice(("memory", "recursive")),
        "block_size": or_none(size),
        "page_window": or_none(size),
        "small_result_bytes": whole(0, MOST_BYTES),
        "max_depth": whole(1, 2**31 - 1),
        "evict_after_op": truth,
        "cost_model": choice(("measured", "bytes")),
        "in_place": choice(("share", "copy")),
        "placement": choice(("best-fit", "two-ended")),
        "move_ns_per_byte": or_none(real("a number from 0.001 to 1,000,000", 1e-3, 1e6)),
    }
)
"""Arguments that `--option` sets, with their types."""
OPTIONS = tuple(OPTION_TYPES)
PLANNING = ("off", "wait", "background")


def check_spill_options(options: argparse.Namespace) -> None:
    """Rejects options of a spill tier without `--spill`."""
    for name in ("spill_dir", "spill_only"):
        if getattr(options, name, None) is not None and options.spill is None:
            options.fail(f"--{name.replace('_', '-')} needs a spill tier: add --spill SIZE")


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


def option_setting(text: str) -> tuple[str, Any]:
    """The type of `--option`: splits NAME=VALUE into the name and the parsed value."""
    name, equals, value = text.partition("=")
    if flag := FLAGS.get(name) or OPTION_FLAGS.get(name):
        raise wrong(f"{name} has its own flag: use {flag}")
    if not equals or name not in OPTION_TYPES:
        hint = "" if name in OPTION_TYPES else did_you_mean(name, OPTIONS)
        raise wrong(
            f"must be NAME=VALUE, where NAME is one of {', '.join(OPTIONS)}; got {text!r}{hint}"
        )
    try:
        return name, OPTION_TYPES[name](value)
    except argparse.ArgumentTypeError as error:
        raise wrong(f"{name} {error}") from None
