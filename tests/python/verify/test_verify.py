"""`recoup verify`, run as a user runs it, on programs that public reports describe."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from command import cli

PROGRAMS = Path(__file__).parent / "reported"
DIFFERENT = 82

TRAIN = """
import os, sys, numpy, torch
from torch import nn
torch.manual_seed(int(os.environ.get("SEED", "0")))
layers = [each for _ in range(4) for each in (nn.Linear(64, 64), nn.Tanh())]
model = nn.Sequential(*layers, nn.Linear(64, 8, bias=False))
rate = float(sys.argv[1]) if len(sys.argv) > 1 else 0.1
optimizer = torch.optim.Adam(model.parameters(), lr=rate)
def loss_of(x):
    if "HALVES" in os.environ:
        hidden, last = model[:-1](x), model[-1].weight.T
        return (hidden[:, :32] @ last[:32] + hidden[:, 32:] @ last[32:]).square().mean()
    return model(x).square().mean()
for step in range(int(os.environ.get("STEPS", "4"))):
    x = torch.randn(512, 64)
    if step == 2 and "DATA" in os.environ:
        x = torch.from_numpy(numpy.ones((512, 64), dtype="float32"))
    if "NOISE" in os.environ:
        x = x + torch.rand(64, generator=torch.Generator().manual_seed(os.getpid()))
    loss_of(x).backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def verify(*args: object) -> subprocess.CompletedProcess[str]:
    return cli("verify", *args)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(TRAIN, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "variant", "first", "kind", "origin"),
    [
        pytest.param(
            "redrawn_dropout",
            "checkpoint",
            "step 1 .* gradient Net.block.3.weight",
            "other random numbers",
            r"aten.bernoulli_.float in Net.block.2, run again by the backward pass",
            id="guided-diffusion-167",
        ),
        pytest.param(
            "batch_norm_twice",
            "checkpoint",
            "step 1 .* buffer Net.block.1.running_mean",
            "different computation",
            "aten.native_batch_norm.default in Net.block.1, run again by the backward pass it runs "
            "2 times in this step, in the reference 1 times",
            id="pytorch-96136",
        ),
        pytest.param(
            "lost_autocast",
            "checkpoint",
            "step 1 .* gradient Net.block",
            "a different computation",
            "aten._to_copy.default, in the backward pass it runs 1 times in this step, in the "
            "reference 0 times",
            id="pytorch-141896",
        ),
        pytest.param(
            "other_experts",
            "checkpoint",
            "step 1 .* gradient Net",
            "other random numbers",
            "aten.randn_like.default in Net.moe, run again by the backward pass",
            id="torchtitan-1117",
        ),
        pytest.param(
            "growing_cache",
            "checkpoint",
            r"step 1 .* buffer Net.cached.seen: torch.float32 of shape \[1\] .* shape \[2\]",
            "different computation",
            "aten.cat.default in Net.cached, run again by the backward pass",
            id="pytorch-155171",
        ),
    ],
)
def test_programs_of_public_reports(
    name: str, variant: str, first: str, kind: str, origin: str
) -> None:
    script = PROGRAMS / f"{name}.py"
    result = verify(script, "--", script, "--variant", variant)
    assert result.returncode == DIFFERENT, result
    said = " ".join(result.stdout.split())
    for expected in (first, kind, origin):
        assert re.search(expected, said), said


def test_the_page_shows_a_real_output() -> None:
    page = (Path(__file__).parents[3] / "docs" / "verify.md").read_text(encoding="utf-8")
    block = re.search(r"^```\n(different.*?)^```", page, re.M | re.S)
    assert block is not None
    script = PROGRAMS / "redrawn_dropout.py"
    result = verify(script, "--", script, "--variant", "checkpoint")
    # How many elements differ, and how much, depends on the machine.
    digits = re.compile(r"\d[\d,.e+-]*(?= of| elem|\n)")
    assert digits.sub("N", result.stdout) == digits.sub("N", block[1])


def test_compiled_code_that_draws_again_is_found() -> None:
    """pytorch 190758: observed ops are not compiled, so the op cannot be named."""
    script = PROGRAMS / "compiled_dropout.py"
    result = verify("--steps", 1, script, "--", script, "--variant", "0.1")
    assert result.returncode == DIFFERENT, result
    said = " ".join(result.stdout.split())
    expected = "step 1 on first difference gradient OptimizedModule._orig_mod.6.weight: 512 of 512"
    assert expected in said
    assert "unknown: the difference is gone while ops are observed" in said
    assert verify("--steps", 1, script, "--", script, "--variant", "1.0").returncode == 0


@pytest.mark.parametrize(
    ("name", "budget"),
    [
        ("redrawn_dropout", "560KiB"),
        ("batch_norm_twice", "384KiB"),
        ("lost_autocast", "384KiB"),
        ("other_experts", "416KiB"),
        ("growing_cache", "288KiB"),
    ],
)
def test_a_budget_of_recoup_changes_nothing(name: str, budget: str) -> None:
    result = verify(PROGRAMS / f"{name}.py", "--", "--budget", budget)
    said = re.fullmatch(
        r"equal after every step \(3 steps\); replays in the budget of the other run: (\d+)\n",
        result.stdout,
    )
    assert result.returncode == 0 and said is not None, result
    assert int(said[1]) > 0


def test_another_rate_is_found_in_the_optimizer(program: Path) -> None:
    result = verify(program, "--", program, "0.2")
    assert result.returncode == DIFFERENT
    said = " ".join(result.stdout.split())
    expected = "step 1 on first difference parameter Sequential.0.weight: 4,096 of 4,096 elements"
    assert expected in said
    assert re.search(r"aten.addcdiv_.default its arguments are \(-2\.0\d*\)", said), said


def test_another_order_of_a_sum_is_a_rounding_difference(program: Path) -> None:
    result = verify(program, "--", "HALVES=1")
    assert result.returncode == DIFFERENT
    assert "a rounding difference" in result.stdout, result.stdout


def test_other_data_come_from_no_op(program: Path) -> None:
    result = verify(program, "--", "DATA=1")
    assert result.returncode == DIFFERENT
    assert "different from step 3 on" in result.stdout
    assert "no op: input data, or code outside PyTorch's ops" in result.stdout


def test_a_program_that_does_not_repeat_is_named(program: Path) -> None:
    result = verify(program, "--", "NOISE=1")
    assert result.returncode == DIFFERENT
    assert "unknown: a run computed something else when it was repeated" in result.stdout


def test_the_other_number_of_steps_is_a_difference(program: Path) -> None:
    more = verify(program, "--", "STEPS=6")
    assert more.returncode == DIFFERENT
    assert more.stdout == "different: the other run has more than 4 steps\n"
    less = verify(program, "--", "STEPS=2")
    assert less.returncode == DIFFERENT
    assert less.stdout == "different: the other run ended after 2 steps, 2 too early\n"
    assert verify("--steps", 2, program, "--", "STEPS=2").returncode == 0
    # The other run has what the reference has, and more.
    assert verify("STEPS=1", program, "--", "RUN=2").stdout == "equal after every step (1 step)\n"


def test_a_recorded_run_is_compared_with_others(program: Path, tmp_path: Path) -> None:
    file = tmp_path / "reference.digests"
    recorded = verify("--record", file, program)
    assert recorded.returncode == 0, recorded
    assert recorded.stdout == f"the digests of 4 steps are in {file}\n"
    assert verify("--against", file, program).returncode == 0
    other = verify("--against", file, "SEED=1", program)
    assert other.returncode == DIFFERENT
    assert "different from step 1 on" in other.stdout


def test_a_program_that_fails_keeps_its_exit_code(program: Path, tmp_path: Path) -> None:
    failing = tmp_path / "failing.py"
    failing.write_text("raise SystemExit(7)")
    result = verify(program, "--", failing)
    assert result.returncode == 7
    assert "ended with exit code 7, so nothing was compared" in result.stderr


def test_a_recording_of_some_steps_is_compared_with_a_longer_run(
    program: Path, tmp_path: Path
) -> None:
    digests = tmp_path / "r.digests"
    verify("--record", digests, "--steps", 2, program)
    same = verify("--against", digests, program)
    assert (same.returncode, same.stdout) == (0, "equal after every step (2 steps)\n")
    shorter = verify("--against", digests, "STEPS=1", program)
    assert shorter.returncode == DIFFERENT and "1 too early" in shorter.stdout


def test_numbers_are_compared_with_a_recording(program: Path, tmp_path: Path) -> None:
    digests = tmp_path / "r.digests"
    verify("--record", digests, program)
    other = verify("--against", digests, "HALVES=1", program)
    assert other.returncode == DIFFERENT and "a rounding difference" in other.stdout


def test_settings_of_a_budget_need_one(program: Path) -> None:
    for options in (["--spill", "8GiB"], ["--policy", "lru"], ["--option", "seed=1"]):
        refused = verify(program, "--", *options)
        assert refused.returncode == 2
        assert f"{options[0]} needs a budget: add --budget SIZE" in refused.stderr
    refused = verify("--spill", "8GiB", "--record", "x", program)
    assert refused.returncode == 2 and "--spill needs a budget" in refused.stderr
    # What both have in common may concern one of them only.
    assert verify("--policy", "lru", program, "--", "--budget", "64MiB").returncode == 0


def test_a_recording_whose_name_is_no_text(program: Path, tmp_path: Path) -> None:
    name = str(tmp_path).encode() + b"/r\xe9f"
    done = verify("--record", os.fsdecode(name), program)
    assert done.returncode == 0 and "r\\udce9f" in done.stdout, done.stderr
    assert os.path.exists(name)
