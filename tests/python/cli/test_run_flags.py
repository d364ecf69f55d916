"""The flags of `recoup run`: their effects, and errors about wrong flags."""

import argparse
import dataclasses
import inspect
import json
import sys
import types
import typing
from pathlib import Path

import pytest

import recoup
from command import cli, cli_here, refused
from recoup import gpus
from recoup.bench.flat_options import split
from recoup.commands.budget_arguments import ARGUMENTS, OPTIONS, OWN_FLAGS, option_type
from recoup.known_names import option_table

B = ["--budget", "1MiB"]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "s.py").write_text("print('ran')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    return "s.py"


def test_every_argument_of_budget_has_a_flag_or_is_an_option() -> None:
    parameters = inspect.signature(recoup.budget).parameters
    # Flags of their own set the profile and the rules.
    assert set(parameters) == {*ARGUMENTS, "profile", "rules", "options"}
    fields = {field.name: field.default for field in dataclasses.fields(recoup.Options)}
    assert fields.keys() == {*OWN_FLAGS, *OPTIONS}
    for name in fields:
        assert option_type(name)(str(fields[name])) == fields[name], name


def test_the_option_table_has_the_defaults_of_the_arguments() -> None:
    table = option_table()
    fields = dataclasses.asdict(recoup.SimulationOptions())
    for name in fields.keys() & table.keys():
        assert table[name].default == (
            list(fields[name]) if isinstance(fields[name], tuple) else fields[name]
        ), name


BOUNDS = {
    "seed": (0, 2**64 - 1, 1),
    "small_result_bytes": (0, 2**62, 1),
    "max_depth": (1, 2**31 - 1, 1),
    "move_ns_per_byte": (0.001, 1e6, 0.0001),
}


def test_options_have_the_types_of_the_arguments() -> None:
    hints = typing.get_type_hints(recoup.Options)
    for name in OPTIONS:
        parse = option_type(name)
        kinds = typing.get_args(hints[name]) or (hints[name],)
        if types.NoneType in kinds:
            assert parse("None") is None
        if typing.get_origin(hints[name]) is typing.Literal:
            assert [parse(each) for each in kinds] == list(kinds)
            with pytest.raises(argparse.ArgumentTypeError, match=f"not one of {', '.join(kinds)}"):
                parse("other")
        elif bool in kinds:
            assert parse("true") is True and parse("False") is False
        elif str in kinds:  # a size
            assert parse("4KiB") == "4KiB"
        else:
            assert name in BOUNDS, "test its bounds too"
    for kind in typing.get_args(hints["planning"]):
        assert option_type("planning")(kind) == kind


@pytest.mark.parametrize("name", BOUNDS)
def test_options_have_the_bounds_of_the_arguments(name: str) -> None:
    least, most, step = BOUNDS[name]
    for good in (least, most):
        recoup.budget("1MiB", **split({name: option_type(name)(str(good))}))  # type: ignore[arg-type]
    for wrong in (least - step, most + step):
        with pytest.raises(ValueError, match=f"^{name} must be "):
            recoup.budget("1MiB", **split({name: wrong}))  # type: ignore[arg-type]
        with pytest.raises(argparse.ArgumentTypeError, match=r"^must be "):
            option_type(name)(str(wrong))


def test_flags_and_options_reach_the_budget(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text("")
    other = {
        "small_filter": True,
        "sampling": False,
        "kinetic": None,
        "seed": 2**64 - 1,
        "usefulness": False,
        "reuse_operands": False,
        "replay_order": "recursive",
        "block_size": "64KiB",
        "page_window": "32MiB",
        "small_result_bytes": 7,
        "max_depth": 8,
        "evict_after_op": True,
        "cost_model": "bytes",
        "in_place": "copy",
        "placement": "best-fit",
        "move_ns_per_byte": 0.5,
    }
    assert set(other) == set(OPTIONS)
    options = [part for name, value in other.items() for part in ("--option", f"{name}={value}")]
    flags = ["--planning", "wait", "--max-replay-ratio", "3", "--policy", "dtr", "--check-replays"]
    flags += ["--max-slowdown", "30"]
    result = cli("run", *B, *flags, *options, "--report", "r.json", "s.py", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "no ops ran" in result.stderr
    settings = json.loads((tmp_path / "r.json").read_text())["settings"]
    want = {"planning": "wait", "max_replay_ratio": 3.0, "policy": "dtr", "check_replays": True}
    want["max_slowdown"] = 30.0
    assert settings == {
        **other, **want, "budget": 2**20, "device": "cpu", "profile": ["modules"],
        "spill": None, "spill_dir": None, "adapt": False, "share": None, "trace": None,
        "rules": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["--budget", "3xyz"],
            "--budget '3xyz' is not a size: 'xyz' is not a unit; it must be a whole number of ",
        ),
        (["--budget", "4 parsecs"], "--budget '4 parsecs' is not a size: "),
        (["--budget", "0"], "--budget '0' is not above 0; it must be "),
        (["--budget=-1"], "--budget '-1' is not above 0; it must be "),
        (["--budget", "none"], "--budget 'none' is not a size; it must be "),
        (["--budget", "1000000TB"], "--budget must be at most"),
        ([*B, "--policy", "mru"], "--policy 'mru' is not one of planned, "),
        ([*B, "--device", "tpu"], "--device must be cpu or a GPU such as cuda:0; got 'tpu'"),
        ([*B, "--device", ""], "--device must be cpu or a GPU such as cuda:0; got ''"),
        (
            [*B, "--spill", "lots"],
            "--spill 'lots' is not a size; it must be a whole number of bytes above 0, ",
        ),
        ([*B, "--spill-dir", "."], "--spill-dir needs a spill tier: add --spill SIZE"),
        ([*B, "--spill", "1MiB", "--spill-dir", ""], "--spill-dir must be the path of a directory"),
        (
            [*B, "--spill", "1MiB", "--spill-dir", "absent"],
            "--spill: cannot create the file of the spill tier in absent: ",
        ),
        ([*B, "--planning", "later"], "--planning 'later' is not one of off, wait, background"),
        ([*B, "--max-replay-ratio", "x"], "--max-replay-ratio must be a number above 0, or 0 "),
        ([*B, "--max-replay-ratio", "nan"], "--max-replay-ratio must be a number above 0, or 0 "),
        ([*B, "--option", "seed=x"], "--option seed must be a whole number; got 'x'"),
        ([*B, "--option", "seed=-1"], "--option seed must be a whole number from 0 to "),
        ([*B, "--option", "kinetic=1"], "--option kinetic must be true or false, or none; got '1'"),
        (
            [*B, "--option", "check_replays=x"],
            "--option check_replays has its own flag",
        ),
        ([*B, "--option", "in_place=x"], "--option in_place 'x' is not one of share, copy"),
        (
            [*B, "--option", "block_size=x"],
            "--option block_size 'x' is not a size; it must be ",
        ),
        (
            [*B, "--option", "move_ns_per_byte=x"],
            "--option move_ns_per_byte must be a number from 0.001 to 1,000,000, or none; got 'x'",
        ),
        (
            [*B, "--policy", "lru", "--option", "kinetic=true"],
            "--option kinetic needs a policy that keeps its candidates in order: ",
        ),
        ([*B, "--option", "seed=1", "--option", "seed=1"], "--option seed was given twice"),
        (
            [*B, "--option", "sead=1"],
            f"--option must be NAME=VALUE, where NAME is one of {', '.join(OPTIONS)}; got 'sead=1'",
        ),
        ([*B, "--option", "decisions=true"], "--option must be NAME=VALUE, where NAME is one of "),
        ([*B, "--option", "seed"], "--option must be NAME=VALUE, where NAME is one of "),
        ([*B, "--option", ""], "--option must be NAME=VALUE, where NAME is one of "),
        ([*B, "--quiet", "--progress"], "--quiet and --progress cannot be combined"),
        ([*B, "--report", "no/r.json"], "--report cannot be written: there is no directory "),
        ([*B, "--report", "."], "--report cannot be written: . is a directory"),
        ([*B, "--trace", "no/t"], "--trace cannot be written: there is no directory "),
        ([*B, "--trace", "\udcff"], "--trace: a file name must be UTF-8; got "),
        ([*B, "--report", "x", "--trace", "./x"], "--report and --trace name the same file"),
    ],
)
def test_a_wrong_value_gives_one_line_that_names_the_flag(
    script: str, capsys: pytest.CaptureFixture[str], flags: list[str], message: str
) -> None:
    line = refused(capsys, "run", *flags, script)
    assert line.startswith(f"recoup run: error: {message}")


def test_a_missing_gpu_is_refused(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    if gpus.problem() is None:
        pytest.skip("there are GPUs")
    line = refused(capsys, "run", *B, "--device", "cuda:0", script)
    assert line.startswith("recoup run: error: --device cuda:0: GPU budgets are unavailable: ")


def test_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(cli_here(capsys, "run", "--help").stdout.split())
    assert ", ".join(OPTIONS) in text
    assert "--planning off|wait|background" in text
    assert f"the eviction policy: {', '.join(policy.name for policy in recoup.policies())};" in text
    parameters = inspect.signature(recoup.budget).parameters
    known = {name: each.default for name, each in parameters.items()}
    known |= dataclasses.asdict(recoup.Options())
    defaults = {"policy": "planned", "planning": "background", "max_replay_ratio": "10"}
    defaults["max_slowdown"] = "20"
    for name, default in defaults.items():
        assert f"(default: {default})" in text
        assert known[name] == type(known[name])(default)
