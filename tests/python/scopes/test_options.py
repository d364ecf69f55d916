"""One table names the options of an engine; this compares other lists of options with it."""

import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any

import numpy
import pytest

import recoup
from documented import bare_fields
from recoup.bench.flat_options import split

HEADER = Path(__file__).parents[3] / "include" / "recoup" / "options.h"
# The device or a test sets these.
NOT_BY_NAME = {"outside", "alignment", "aids", "spill_compares", "spill_to_leave"}
# Options that `recoup.budget` names differently.
BUDGET_NAMES = {each: f"{each}_bytes" for each in ("budget", "block_size", "page_window", "spill")}
NO_OPTIONS = {"device", "trace", "profile", "adapt", "share", "rules", "options"}
SIMULATED_ONLY = {"oracle", "chain_cost", "address_bytes"} | {
    "spill_unit_bytes",
    "spill_read_ns_per_byte",
    "spill_write_ns_per_byte",
    "spill_request_ns",
}
# The values that None stands for.
NONE_IS = {"block_size": 0, "page_window": 0, "spill": 0, "spill_dir": ""}


def defaults() -> dict[str, Any]:
    return recoup._C.Options().as_dict()


def test_budget_takes_each_option_with_the_default_of_the_table() -> None:
    parameters = inspect.signature(recoup.budget).parameters
    given = {name: each.default for name, each in parameters.items() if name not in NO_OPTIONS}
    given |= dataclasses.asdict(recoup.Options())
    assert {BUDGET_NAMES.get(name, name) for name in given} == set(defaults()) - SIMULATED_ONLY
    for name, default in given.items():
        if name not in BUDGET_NAMES and name not in NONE_IS:
            assert default == defaults()[name], name
    for name, value in NONE_IS.items():
        assert defaults()[BUDGET_NAMES.get(name, name)] == value
        assert given[name] is None


def test_every_field_of_the_options_is_documented() -> None:
    assert bare_fields(recoup.Options) == []


def test_budget_passes_each_option_on() -> None:
    other = {
        "policy": "dtr",
        "check_replays": True,
        "small_filter": True,
        "sampling": True,
        "kinetic": False,
        "seed": 2**64 - 1,
        "usefulness": False,
        "reuse_operands": False,
        "replay_order": "recursive",
        "max_replay_ratio": 3.0,
        "max_slowdown": 4.0,
        "small_result_bytes": 7,
        "max_depth": 8,
        "evict_after_op": True,
        "cost_model": "bytes",
        "planning": "wait",
        "in_place": "copy",
        "placement": "best-fit",
        "move_ns_per_byte": 0.5,
        "spill_dir": "/var/tmp",
    }
    sizes = {"block_size": "64KiB", "page_window": "32MiB", "spill": "2MiB"}
    made = recoup.budget("1MiB", **split({**sizes, **other})).setup.options.as_dict()
    in_bytes = {"budget_bytes": 2**20, "block_size_bytes": 2**16, "spill_bytes": 2**21}
    in_bytes["page_window_bytes"] = 2**25
    assert made == defaults() | other | in_bytes
    for name, value in other.items():
        assert value != defaults()[name], name


def test_each_member_of_the_header_has_a_name() -> None:
    body = re.search(r"^struct Options \{(.*?)^\};", HEADER.read_text(), re.DOTALL | re.MULTILINE)
    assert body is not None
    code = re.sub(r"//.*", "", body[1])
    members = re.findall(r"(\w+)\s*(?:=[^;]*|\{[^;]*\})?;", code)
    assert len(members) - len(NOT_BY_NAME) == len(defaults())
    assert set(members) >= NOT_BY_NAME


@pytest.mark.parametrize("value", [numpy.int64(5), numpy.uint8(5), 5])
def test_integers_of_numpy(value: Any) -> None:
    assert (
        recoup.budget("1MiB", options=recoup.Options(seed=value)).setup.options.as_dict()["seed"]
        == 5
    )


@pytest.mark.parametrize("value", [numpy.float32(0.5), numpy.float64(0.5), 0.5])
def test_floats_of_numpy(value: Any) -> None:
    options = recoup.budget(
        "1MiB", options=recoup.Options(move_ns_per_byte=value)
    ).setup.options.as_dict()
    assert options["move_ns_per_byte"] == 0.5


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"seed": 1.0}, r"seed must be a whole number from 0 to 18446744073709551615; got float"),
        ({"seed": True}, "seed must be a whole number .*; got bool True"),
        ({"check_replays": "no"}, "check_replays must be True or False; got str 'no'"),
        ({"sampling": 2.5}, "sampling must be True, False or None; got float"),
        ({"policy": 3}, "policy must be a name .*; got int"),
        ({"policy": ["lru"]}, "policy must be a name .*; got list"),
        ({"placement": None}, "placement must be one of best-fit, two-ended; got NoneType"),
        ({"max_depth": object()}, "max_depth must be a whole number .*; got object"),
    ],
)
def test_wrong_types(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        recoup.budget("1MiB", **split(wrong))


def test_integers_out_of_range() -> None:
    for value in (2**64, -(2**70), 10**400):
        with pytest.raises(ValueError, match="seed must be a whole number from 0"):
            recoup.budget("1MiB", options=recoup.Options(seed=value))


def test_an_unknown_option() -> None:
    with pytest.raises(TypeError, match=r"unknown options .*'sampled'"):
        recoup._C.Options(sampled=True)
