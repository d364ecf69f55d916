"""Checks of combinations of arguments of `recoup simulate`, before PyTorch is loaded."""

import argparse
import importlib.util
import itertools
from dataclasses import dataclass
from typing import Any

from recoup._memory.sizes import MOST_BYTES, parse_bytes, percent_range
from recoup.commands.argument_types import check_choice
from recoup.commands.budget_arguments import check_spill_options, check_tuning, flag_of
from recoup.known_names import names, policy_names

ANY_PEAK = 1 << 40
"""A stand-in for the peak of a trace that is not read yet, for `parse_budgets`."""
_OF_PRESET = ("trace", "preset", "policy", "budgets", "max_time_ratio", "jobs", "json", "plot")
"""Options that --preset dtr supports."""
_MOST_PERCENT = 1_000_000


@dataclass(frozen=True)
class Case:
    """A column of the table: a policy, with or without a spill tier."""

    policy: str
    spill: str | None = None
    bandwidth: tuple[float, float] | None = None

    @property
    def column(self) -> str:
        if self.spill is None:
            return self.policy
        speed = "" if self.bandwidth is None else " {:g},{:g} GB/s".format(*self.bandwidth)
        return f"{self.policy}\n+ {self.spill}{speed}"

    def to_dict(self) -> dict[str, Any]:
        return {"spill": self.spill, "spill_bandwidth": self.bandwidth}


def check(options: argparse.Namespace) -> None:
    """Rejects invalid combinations; fills in the policies and `cases`, the columns."""
    _choose_policies(options)
    check_tuning(options, options.policy)
    options.cases = _cases(options)
    _check_optimum(options)
    _check_pictures(options)


def parse_budgets(text: str, peak_bytes: int) -> list[int]:
    """Returns bytes in the order given. Raises ValueError with the allowed values."""
    percents = percent_range(text)
    if percents is None:
        return [_parse_budget(part.strip(), peak_bytes) for part in text.split(",")]
    return [min(max(1, peak_bytes * percent // 100), MOST_BYTES) for percent in percents]


def _parse_budget(text: str, peak_bytes: int) -> int:
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        return parse_bytes(text, name="a budget")
    if not 0 < percent <= _MOST_PERCENT:
        raise ValueError(f"a budget must be above 0 % and at most {_MOST_PERCENT} %; got {text!r}")
    return min(max(1, int(peak_bytes * percent / 100)), MOST_BYTES)


def _choose_policies(options: argparse.Namespace) -> None:
    """Rejects policies and options that the preset does not support; fills in its defaults."""
    if options.preset is None:
        known = policy_names(simulated=True)
    else:
        known = names("dtr_policies")
        _check_preset(options)
    if options.policy is None:
        options.policy = ["planned"] if options.preset is None else ["dtr"]
    if options.max_time_ratio is None:
        options.max_time_ratio = 10.0 if options.preset is None else 2.0
    if options.policy == ["all"]:
        options.policy = known
    for name in options.policy:
        try:
            check_choice(name, [*known, "all"] if len(options.policy) == 1 else known)
        except ValueError as error:
            options.fail(f"--policy {error}")


def _check_preset(options: argparse.Namespace) -> None:
    from recoup.offline.trace_names import is_dtr_log

    if not is_dtr_log(options.trace):
        options.fail(
            f"--preset dtr needs a log of the DTR authors (.log, .log.gz); got {options.trace}"
        )
    for name, value in vars(options).items():
        if name not in _OF_PRESET and value != options.default(name):
            options.fail(f"--preset dtr does not support {flag_of(name)}: leave it out")


def _cases(options: argparse.Namespace) -> list[Case]:
    """Returns one case for each column."""
    if options.spill is None:
        check_spill_options(options)
        return [Case(name) for name in options.policy]
    cases = []
    for name, spill in itertools.product(options.policy, options.spill):
        if spill is None:
            cases.append(Case(name))
        else:
            cases += [Case(name, spill, speed) for speed in options.spill_bandwidth or [None]]
    return list(dict.fromkeys(cases))


def _check_optimum(options: argparse.Namespace) -> None:
    if not options.optimum:
        return
    if importlib.util.find_spec("scipy") is None:
        options.fail("--optimum needs SciPy: pip install 'recoup[optimum]'")
    if options.spill is not None:
        options.fail("--optimum does not support a spill tier: leave out --spill")
    if dict(options.option).get("cost_model", "measured") != "measured":
        options.fail("--optimum needs measured costs: leave out --option cost_model")


def _check_pictures(options: argparse.Namespace) -> None:
    if options.plot is not None and importlib.util.find_spec("matplotlib") is None:
        options.fail("--plot needs matplotlib: pip install matplotlib")
    count = len(options.cases) * len(parse_budgets(options.budgets, ANY_PEAK))
    if options.timeline is not None and count != 1:
        options.fail("--timeline needs one policy, one budget and at most one spill tier")
