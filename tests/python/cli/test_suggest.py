"""`recoup suggest`, run as a user runs it."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch

import recoup
from command import cli, refused
from recoup._memory.sizes import format_bytes, parse_bytes
from recoup.offline.traces import Trace

TRAIN = """
    import sys
    import torch
    torch.manual_seed(0)
    layers = [each for _ in range(6) for each in (torch.nn.Linear(128, 128), torch.nn.Tanh())]
    net = torch.nn.Sequential(*layers)
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(int(sys.argv[1])):
        loss = net(torch.randn(512, 128)).square().mean()
        loss.backward()
        print(loss.item().hex(), flush=True)
        optimizer.step()
        optimizer.zero_grad()
    print("the end")
"""
LOOP = """
    import atexit
    import os
    import sys
    import torch
    weight = torch.ones(64, 64, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    def step():
        torch.randn(64, 64).mm(weight).sin().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def write(folder: Path, *texts: str, name: str = "train.py") -> str:
    path = folder / name
    path.write_text("".join(map(textwrap.dedent, texts)), encoding="utf-8")
    return path.name


def suggest(folder: Path, *args: object) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """The process and the figures in its JSON file; none if it failed."""
    file = folder / "figures.json"
    file.unlink(missing_ok=True)
    result = cli("suggest", "--json", file, *args, cwd=folder)
    return result, json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def commands_in(text: str) -> list[list[str]]:
    return [shlex.split(line) for line in text.splitlines() if line.startswith("  recoup run ")]


# ---- suggestions ----


def test_suggested_commands_work(tmp_path: Path) -> None:
    script = write(tmp_path, TRAIN, name="my train.py")
    plain = subprocess.run(
        [sys.executable, script, "5"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    result, figures = suggest(tmp_path, script, 5)
    # On a slow machine stderr has the progress of the simulations.
    progress = r"(recoup suggest: \d+ simulations in \d+ s\n)*"
    assert result.returncode == 0 and re.fullmatch(progress, result.stderr)
    # It ran four steps of the program and stopped it before its end.
    assert result.stdout.splitlines()[:4] == plain.stdout.splitlines()[:4]
    assert "the end" not in result.stdout
    commands = commands_in(result.stdout)
    assert [each[3] for each in commands] == [
        figures[which]["budget"] for which in ("suggested_knee", "suggested_least")
    ]
    assert figures["suggested_least"]["budget_bytes"] > 1.14 * figures["least"]["budget_bytes"]
    assert "because only the first steps were recorded" in result.stdout
    assert list(tmp_path.glob("*.rtrace*")) == []
    for command in commands:
        budget = parse_bytes(command[3])
        run = cli(*command[1:4], "--report", "report.json", *command[4:], cwd=tmp_path)
        assert (run.returncode, run.stdout) == (0, plain.stdout)
        stats = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["stats"]
        assert stats["memory"]["peak_bytes"] <= budget and stats["work"]["replays"] > 0


def test_a_run_without_recoup_is_timed_on_request(tmp_path: Path) -> None:
    script = write(tmp_path, TRAIN)
    plain = subprocess.run(
        [sys.executable, script, "4"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    result, figures = suggest(tmp_path, "--time-plain", "--steps", 3, script, 4)
    assert result.returncode == 0, result.stderr
    # The program ran twice, for three steps each time.
    assert result.stdout.splitlines()[:6] == 2 * plain.stdout.splitlines()[:3]
    assert "a step without recoup, which was measured." in result.stdout
    assert len(figures["plain_steps_ns"]) == 3 and min(figures["plain_steps_ns"]) > 0
    estimated, figures = suggest(tmp_path, "--steps", 3, script, 4)
    assert "a step without recoup, estimated from the recording." in estimated.stdout
    assert figures["plain_steps_ns"] == []


def test_the_figures_of_the_json_file(tmp_path: Path) -> None:
    script = write(tmp_path, TRAIN)
    result, figures = suggest(tmp_path, "--keep-trace", "run.rtrace", script, 3)
    assert "The program ended by itself, after 3 steps.\n" in result.stdout
    assert (
        "Only two recorded steps ran the same ops. A plan takes effect from the third"
        in result.stdout
    )
    peak = Trace.read(tmp_path / "run.rtrace").unbudgeted_peak_bytes()
    rows = figures["predictions"]
    budgets = [row["budget_bytes"] for row in rows]
    assert budgets == sorted(budgets, reverse=True)
    assert budgets[0] == pytest.approx(peak, rel=0.005)
    assert figures["least"] in rows and figures["knee"] in rows
    least = rows.index(figures["least"])
    assert not any(row["holds"] for row in rows[least + 1 :])
    # Within a hundredth of the peak.
    assert budgets[least] - budgets[least + 1] <= 0.011 * peak
    for row in rows:
        assert row["fraction"] == row["budget_bytes"] / peak
        line = next(
            line for line in result.stdout.splitlines() if line.split()[:1] == [row["budget"]]
        )
        assert f"{row['fraction']:.0%}" in line
        assert (f"{row['time_ratio'] or 0:.2f}x" in line) == (row["status"] == "ok")
        assert ("least" in line) == (row == figures["least"])
        assert ("knee" in line) == (row == figures["knee"])
    # The same from the recording, which does not have the memory of the process.
    again, same = suggest(tmp_path, "--trace", "run.rtrace")
    without_times = [
        [each | {"time_ratio": None} for each in table] for table in (rows, same["predictions"])
    ]
    assert without_times[0] == without_times[1] and same["other_resident_bytes"] is None
    assert figures["other_resident_bytes"] > 100 << 20 and "resident" not in again.stdout
    assert commands_in(again.stdout)[0][-1] == "SCRIPT"


def test_resident_memory(tmp_path: Path) -> None:
    """The figure is right within 10 %: here for 64 MB of tensors and 200 MB of other memory."""
    program = """
        import torch
        others = b"x" * (200 << 20)
        weight = torch.ones(64, 1 << 14, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.1)
        for _ in range(3):
            loss = weight.sin().cos().exp().sin().cos().exp().sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        del loss
        status = open("/proc/self/status").read()
        print("most", int(status.split("VmHWM:")[1].split()[0]) << 10)
    """
    script = write(tmp_path, program)
    _, figures = suggest(tmp_path, "--steps", 2, script)
    budget = figures["least"]
    run = cli("run", "--budget", budget["budget"], script, cwd=tmp_path)
    assert run.returncode == 0
    most = int(run.stdout.split("most")[1].split()[0])
    expected = figures["other_resident_bytes"] + budget["budget_bytes"]
    assert expected == pytest.approx(most, rel=0.1)


def test_suggestions_with_a_spill_tier_and_a_policy(tmp_path: Path) -> None:
    script = write(tmp_path, TRAIN)
    args = ("--spill", "64MiB", "--policy", "recoup", "--steps", 2, script, 5)
    result, figures = suggest(tmp_path, *args)
    assert result.returncode == 0
    assert "with 64MiB on disk" in result.stdout
    assert figures["least"]["fraction"] < 0.4  # less than the parameters and their state
    for command in commands_in(result.stdout):
        assert command[4:8] == ["--policy", "recoup", "--spill", "64MiB"]
    assert "with 64MiB on disk: on a disk of 0.8 GB/s each way." in result.stdout
    advised = [figures["suggested_knee"], figures["suggested_least"]]
    uses = {use["budget"]: use for use in figures["tier_use"]}
    assert list(uses) == list(dict.fromkeys(one["budget"] for one in advised))
    for one in advised:
        use = uses[one["budget"]]
        written = use["written_step_bytes"]
        assert written == one["written_step_bytes"]
        line = f"written in 10,000 steps .*{re.escape(format_bytes(10_000 * written))}"
        assert re.search(line, result.stdout)
        conclusion = {
            "ok": "recomputation alone" if use["without"]["holds"] else "enough only if costs",
            "too slow": "takes more than 10x.",
        }.get(use["without"]["status"], "is not enough.")
        lines = [line for line in result.stdout.splitlines() if conclusion in line]
        assert any(one["budget"] in line for line in lines)
    assert uses[advised[1]["budget"]]["written_step_bytes"] > 0


def test_the_largest_batch(tmp_path: Path) -> None:
    script = write(tmp_path, TRAIN)
    args = ("--steps", 2, "--batch-size-for", "4MiB", "--batch", 512, script, 5)
    result, figures = suggest(tmp_path, *args)
    assert result.returncode == 0
    largest = figures["largest"]
    assert largest["prediction"]["holds"] and largest["prediction"]["budget"] == "4MiB"
    assert (
        f"The largest batch in 4MiB is {largest['batch']}; the recorded batch is 512."
        in result.stdout
    )
    assert f"{largest['sample_time_ratio']:.2f}x that of the recorded batch" in result.stdout
    assert "an extrapolation from a batch of 512" in result.stdout
    assert commands_in(result.stdout) == [["recoup", "run", "--budget", "4MiB", script, "5"]]


OF_LENGTH = """
    import sys
    import torch
    torch.manual_seed(0)
    batch, length = map(int, sys.argv[1:])
    attention = torch.nn.MultiheadAttention(64, 4, batch_first=True)
    optimizer = torch.optim.Adam(attention.parameters())
    for _ in range(4):
        inputs = torch.randn(batch, length, 64)
        mixed, _ = attention(inputs, inputs, inputs)  # needs the matrix of attention
        mixed.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def test_the_largest_batch_for_longer_inputs(tmp_path: Path) -> None:
    script = write(tmp_path, OF_LENGTH)
    given = ("--batch-size-for", "8MiB", "--batch", 13, "--lengths", "31:128", script, 13, 31)
    result, figures = suggest(tmp_path, *given)
    assert result.returncode == 0, result.stderr
    assert (
        "It is for inputs of length 128, and assumes that all recorded inputs have length 31."
        in result.stdout
    )
    assert figures["lengths"] == [31, 128]
    batch = figures["largest"]["batch"]
    budget = ("run", "--budget", "8MiB")
    assert cli(*budget, script, batch, 128, cwd=tmp_path).returncode == 0
    assert cli(*budget, script, 3 * batch, 128, cwd=tmp_path).returncode != 0
    refused, _ = suggest(tmp_path, *given[:5], "32:128", script, 13, 32)
    assert refused.returncode == 2
    assert "32, the length of the recorded inputs, divides the sizes of most" in refused.stderr


# ---- how the program ends ----


@pytest.mark.parametrize(
    ("end", "code", "words"),
    [
        ("for _ in range(9): step()", 0, []),
        (
            "try:\n    for _ in range(9): step()\nfinally:\n    print('finally')\n"
            "    atexit.register(print, 'at exit')",
            0,
            ["finally", "at exit"],
        ),
        ("try:\n    while True: step()\nexcept BaseException:\n    raise ValueError", 0, []),
        ("try:\n    while True: step()\nexcept:\n    sys.exit(3)", 0, []),
        ("for _ in range(9):\n    try: step()\n    except: print('caught')", 0, 6 * ["caught"]),
        (
            "while True:\n    try: step()\n    except: pass",
            0,
            [
                "The program caught the exception that stops it, so it was ended without its "
                "exit handlers."
            ],
        ),
        ("step()\nstep()\nsys.exit(7)", 7, ["The program ended with exit code 7 by itself"]),
    ],
)
def test_programs_that_end_early_or_are_stopped(
    tmp_path: Path, end: str, code: int, words: list[str]
) -> None:
    script = write(tmp_path, LOOP, end + "\n")
    result, figures = suggest(tmp_path, "--steps", 4, script)
    assert (result.returncode, result.stderr) == (code, "")
    assert figures["least"] is not None
    lines = result.stdout.splitlines()
    for word in words:
        assert any(line.startswith(word) for line in lines)
    assert lines.count("caught") == words.count("caught")


@pytest.mark.parametrize(
    ("end", "code", "last"),
    [
        (
            "step()\nsys.exit(1)",
            1,
            "the program ended (exit code 1) after 1 step of its optimizer, but 2 are needed",
        ),
        (
            "step()",
            2,
            "the program ended (exit code 0) after 1 step of its optimizer, but 2 are needed; if "
            "the program uses no optimizer of torch.optim, record it with recoup.trace(), call "
            "run.mark_step() after each step, and pass --trace FILE",
        ),
        (
            "step()\nstep()\nos._exit(0)",
            2,
            "the program ended with exit code 0, without its exit handlers, so nothing was "
            "recorded",
        ),
        (
            "step()\nos.kill(os.getpid(), 9)",
            128 + 9,
            "the program ended by signal 9, without its exit handlers, so nothing was recorded",
        ),
    ],
)
def test_too_few_steps_are_an_error(tmp_path: Path, end: str, code: int, last: str) -> None:
    script = write(tmp_path, LOOP, end + "\n")
    result = cli("suggest", script, cwd=tmp_path)
    assert result.returncode == code
    assert result.stderr.endswith(f"recoup suggest: error: {last}\n")


def test_a_failing_program_prints_its_own_error(tmp_path: Path) -> None:
    script = tmp_path / write(tmp_path, LOOP, "step()\nraise LookupError('lost')\n")
    plain = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=False
    ).stderr
    errors = cli("suggest", script).stderr
    assert plain.endswith("LookupError: lost\n") and errors.startswith(plain)
    assert errors.removeprefix(plain).count("\n") == 1


def test_ctrl_c_prints_only_the_programs_traceback(tmp_path: Path) -> None:
    script = write(tmp_path, "import time\nprint('ready', flush=True)\ntime.sleep(60)\n")
    with subprocess.Popen(
        [sys.executable, "-m", "recoup", "suggest", script],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.killpg(process.pid, signal.SIGINT)  # as a terminal sends it
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    # The program's own traceback, and none of recoup.
    assert errors.count("Traceback") == 1 and errors.endswith("KeyboardInterrupt\n")


def test_two_optimizers_and_a_module(tmp_path: Path) -> None:
    write(
        tmp_path,
        LOOP,
        """
        other = torch.optim.Adam([torch.ones(4, requires_grad=True)])
        def both():
            step()
            other.step()
            print("round")
        """,
        "while True: both()\n",
    )
    result, figures = suggest(tmp_path, "-m", "train", "an argument")
    assert result.returncode == 0
    # The fourth step of the first optimizer ends the run, before the step of the other one.
    assert result.stdout.count("round") == 3
    assert commands_in(result.stdout)[-1][4:] == ["-m", "train", "an argument"]
    assert figures["least"] is not None


# ---- refused arguments ----


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "the following arguments are required: SCRIPT, or --trace FILE"),
        (["--trace", __file__, "train.py"], "--trace runs no program: leave out the program"),
        (["--trace", __file__, "--steps", "3"], "--trace runs no program: leave out --steps"),
        (["--trace", "nothing"], "No such file or directory"),
        (["--steps", "1", "train.py"], "--steps must be 2 or more; got 1"),
        (["--policy", "oracle", "train.py"], "policy 'oracle' is not one of planned"),
        (["--spill", "0", "train.py"], "spill '0' is not above 0; it must be a whole number"),
        (["--batch", "3", "train.py"], "--batch B needs --batch-size-for SIZE"),
        (["--batch-size-for", "1MiB", "train.py"], "--batch-size-for SIZE needs --batch B"),
        (["--batch", "0", "--batch-size-for", "1MiB", "train.py"], "--batch must be 1 or more"),
        (["--batch", "1", "--batch-size-for", "1Mi", "train.py"], "'Mi' is not a unit"),
        (["--lengths", "7:9", "train.py"], "--lengths RECORDED:LONGEST needs --batch B"),
        (
            ["--lengths", "512", "train.py"],
            "--lengths '512' is not two lengths; it must be RECORDED:LONGEST, such as 127:512",
        ),
        (["--lengths", "512:127", "train.py"], "'512:127' has a longest length below the recorded"),
        (["--lengths", "1:127", "train.py"], "'1:127' has a recorded length below 2; it must be"),
        (["--max-time-ratio", "nan", "train.py"], "--max-time-ratio must be above 1; got 'nan'"),
        (["--json", "/nowhere/x", "train.py"], "there is no directory /nowhere"),
        (["--keep-trace", "/", "train.py"], "/ is a directory"),
        (["/nowhere/train.py"], "can't open file '/nowhere/train.py': [Errno 2]"),
    ],
)
def test_wrong_arguments_are_refused(
    capsys: pytest.CaptureFixture[str], args: list[str], message: str
) -> None:
    line = refused(capsys, "suggest", *args)
    assert line.startswith("recoup suggest: error: ") and message in line


def test_a_trace_with_too_few_steps_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "run.rtrace"
    with recoup.trace(path, device="cpu") as run:
        torch.ones(1000).mul(2)
        run.mark_step()
    line = refused(capsys, "suggest", "--trace", path)
    assert f"{path}: 1 step in the trace, but 2 are needed" in line


PHASES = """
    import torch
    torch.manual_seed(0)
    layers = [m for _ in range(6) for m in (torch.nn.Linear(256, 256), torch.nn.GELU())]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.Adam(model.parameters())
    for rows in (512,) * 6 + (2048,):  # the last batch is larger
        loss = model(torch.randn(rows, 256)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"{loss.item():.9e}")
"""


def test_a_whole_run_includes_later_steps(tmp_path: Path) -> None:
    script = write(tmp_path, PHASES)
    plain = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    early, first = suggest(tmp_path, script)
    result, whole = suggest(tmp_path, "--whole-run", script)
    assert "only the first steps were recorded" in early.stdout
    assert "margin of 5%: costs differ between runs" in result.stdout
    assert "--whole-run" not in result.stdout
    assert whole["least"]["budget_bytes"] > first["suggested_least"]["budget_bytes"]
    for command in commands_in(result.stdout):
        run = cli(*command[1:], cwd=tmp_path)
        assert (run.returncode, run.stdout) == (0, plain.stdout)
    refused = cli("suggest", "--whole-run", "--steps", "3", script, cwd=tmp_path)
    assert refused.returncode == 2 and "records all steps: leave out --steps" in refused.stderr


def test_an_unknown_option_of_the_program_gives_a_hint(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        """
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--steps")
        parser.parse_args()
        """,
    )
    known = cli("suggest", script, "--steps", "3", cwd=tmp_path)
    assert "put it before" not in known.stderr
    result = cli("suggest", script, "--time-plain", cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr.endswith(
        f"recoup: --time-plain comes after {script}, which does not know it; if it is an option of "
        f"recoup, put it before {script}\n"
    )
    other = cli("suggest", script, "--unknown", cwd=tmp_path)
    assert "unrecognized arguments: --unknown" in other.stderr
    assert "put it before" not in other.stderr
