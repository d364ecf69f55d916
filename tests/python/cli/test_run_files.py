"""Output of `recoup run`: the summary on stderr, the report and the trace."""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import recoup
from command import TRAIN, cli
from recoup._memory.sizes import format_bytes
from recoup._reporting.report import format_ns
from recoup.commands.exit_codes import NOT_WRITTEN
from recoup.commands.run.suggestions import read_suggestions
from recoup.commands.run.summary import summary_lines
from recoup.stats import STATS_GROUPS

REPLAYS = """
    import torch
    base = torch.ones(2**18)
    kept = [base.mul(i) for i in range(12)]
    print(sum(t[0].item() for t in kept))
"""


def run(folder: Path, text: str, *flags: str, budget: str = "64MiB", **options: Any) -> Any:
    (folder / "script.py").write_text(textwrap.dedent(text), encoding="utf-8")
    return cli("run", "--budget", budget, *flags, "script.py", cwd=folder, **options)


def stats_of(**values: int) -> recoup.Stats:
    zero = {field.name: 0 for field in fields(recoup.Stats)}
    return recoup.Stats(**{**zero, "budget_bytes": 1 << 20, **values})


# ---- the summary ----


def test_summary_agrees_with_the_report(tmp_path: Path) -> None:
    result = run(tmp_path, REPLAYS, "--report", "r.json", "--trace", "t.rtrace", budget="8MiB")
    assert (result.returncode, result.stdout) == (0, "66.0\n")
    memory, time, work = result.stderr.splitlines()
    stats = json.loads((tmp_path / "r.json").read_text())["stats"]
    assert stats["work"]["replays"] > 0
    percent = 100 * stats["memory"]["peak_bytes"] / (8 << 20)
    assert re.fullmatch(r"recoup: peak \S+ MiB of a budget of 8.0 MiB \(.*\)", memory)
    assert memory.endswith(f"({percent:.1f} %, set by --budget)")
    assert time.startswith("recoup: about ") and "x the time of the program's ops alone: " in time
    trace, report = tmp_path / "t.rtrace", tmp_path / "r.json"
    replays = stats["work"]["replays"]
    assert work == f"recoup: {replays:,} replays, trace in {trace}, report in {report}"


def test_the_time_ratio_of_the_summary() -> None:
    times = {
        "replay_ns": 1, "search_ns": 2, "bookkeeping_ns": 4, "move_ns": 8, "spill_ns": 16,
        "fetch_ns": 32, "planning_ns": 64,
    }  # fmt: skip
    # Time of the ops themselves, measured twice, or an estimate: not overhead of the budget.
    others = {
        "allocator_ns": 1000, "replay_cost_ns": 1000, "spill_cost_ns": 1000,
        "copy_time_ns": 1000,
        "followed_cost_ns": 1000, "followed_expected_ns": 1000,
    }  # fmt: skip
    stats = stats_of(op_count=1, op_ns=254, **times, **others)
    assert stats.added_ns == 127
    assert {name for name in stats.to_dict() if name.endswith("_ns")} == {
        "op_ns", *times, *others,
    }  # fmt: skip
    _, time, _ = summary_lines(stats, "measured", {})
    assert time == (
        "recoup: about 1.50x the time of the program's ops alone: 254 ns in ops, "
        "127 ns added by the budget"
    )
    assert "time is unknown" in summary_lines(stats, "bytes", {})[1]
    assert summary_lines(stats_of(), "measured", {})[1:] == [
        "recoup: no ops ran",
        "recoup: 0 replays",
    ]


def test_the_summary_names_what_the_tier_copied(tmp_path: Path) -> None:
    program = """
        import torch
        model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(8)])
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.ones(8, 512)).sum().backward()
            optimizer.step()
    """
    # Parameters, gradients and state have 32 MiB.
    files = ("--report", "r.json")
    result = run(tmp_path, program, "--spill", "64MiB", *files, budget="20MiB")
    assert (result.returncode, result.stdout) == (0, ""), result.stderr
    groups = json.loads((tmp_path / "r.json").read_text())["stats"]
    copies = {name: count for group in groups.values() for name, count in group.items()}
    peak, written, read = (
        format_bytes(copies[name])
        for name in ("spill_peak_bytes", "spilled_bytes", "fetched_bytes")
    )
    assert copies["spilled_bytes"] > 0 < copies["fetched_bytes"]
    assert (
        f"recoup: The spill tier held at most {peak}. {written} were written to it, and {read} "
        "read from it."
    ) in result.stderr.splitlines()


def test_the_summary_names_what_set_the_budget_and_what_adapt_did(tmp_path: Path) -> None:
    lines = run(tmp_path, TRAIN, "--adapt").stderr.splitlines()
    assert lines[0].endswith("%, set by --budget)")
    assert lines[-1] == "recoup: The budget followed the machine's memory, and did not change."


_STEPS = """
    import sys, torch
    model = torch.nn.Linear(256, 256)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(int(sys.argv[1])):
        optimizer.zero_grad()
        model(torch.ones(64, 256)).square().mean().backward()
        optimizer.step()
    print("the end")
"""


def test_steps_are_compared_with_those_without_recoup(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(textwrap.dedent(_STEPS))
    files = ("--time-plain", "--report", "r.json")
    result = cli("run", "--budget", "64MiB", *files, "script.py", "9", cwd=tmp_path)
    # The end of the program without recoup is after the steps that are timed.
    assert (result.returncode, result.stdout) == (0, "the end\n"), result.stderr
    assert "the end" not in result.stderr
    ratio = json.loads((tmp_path / "r.json").read_text())["step_ratio"]
    assert (ratio["steps"], ratio["plain_steps"]) == (8, 5)
    step, plain = format_ns(ratio["step_ns"]), format_ns(ratio["plain_step_ns"])
    over = ratio["step_ns"] / ratio["plain_step_ns"]
    assert (
        f"recoup: a step took {step}, and {plain} without recoup: {over:.2f}x (medians of 8 steps "
        "and 5, the first steps left out)"
    ) in result.stderr.splitlines()
    page_of = ("--time-plain", "--report", "r.html")
    result = cli("run", "--budget", "64MiB", *page_of, "script.py", "1", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (0, "the end\n")
    assert "recoup: --time-plain compares no steps: the program needs two" in result.stderr
    assert "Step time over plain" not in (tmp_path / "r.html").read_text()


def test_a_program_that_fails_without_recoup_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import sys\nprint('ran')\nsys.exit(3)")
    result = cli("run", "--budget", "64MiB", "--time-plain", "script.py", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (3, "")
    assert result.stderr.endswith("recoup run: error: the program failed without recoup\n")


def test_the_summary_divides_the_peak() -> None:
    stats = stats_of(peak_bytes=409 << 20, budget_bytes=1 << 30)
    first, *_ = summary_lines(stats, "measured", {}, source="--budget", non_tensor_bytes=45 << 20)
    assert first == (
        "recoup: peak 409 MiB (364 MiB of tensors + 45.0 MiB of the process) of a budget of "
        "1.0 GiB (39.9 %, set by --budget)"
    )


def test_a_name_with_a_line_break_is_quoted() -> None:
    assert summary_lines(stats_of(), "measured", {"report": "a\nb"})[2] == (
        "recoup: 0 replays, report in 'a\\nb'"
    )


@pytest.mark.parametrize(
    ("statement", "code", "last"),
    [
        ("1 / 0", 1, "ZeroDivisionError: division by zero"),
        ("sys.exit('why')", 1, "why"),
        ("sys.exit(3)", 3, None),
        ("raise KeyboardInterrupt", -signal.SIGINT, "KeyboardInterrupt"),
        ("threading.Timer(0.1, lambda: print('late', file=sys.stderr)).start()", 0, "late"),
        ("atexit.register(lambda: print('bye', file=sys.stderr))", 0, "bye"),
    ],
)
def test_the_summary_comes_last_however_the_program_ends(
    tmp_path: Path, statement: str, code: int, last: str | None
) -> None:
    result = run(tmp_path, f"import atexit, sys, threading\n{statement}\n")
    assert (result.returncode, result.stdout) == (code, "")
    *before, memory, _, work = result.stderr.splitlines()
    assert memory.startswith("recoup: peak ") and work == "recoup: 0 replays"
    assert not any(line.startswith("recoup") for line in before)
    assert (before[-1] if before else None) == last


@pytest.mark.parametrize("redirection", ["2>&-", ">&- 2>&-", "2>/dev/full"])
def test_a_stderr_that_cannot_be_written_is_not_a_failure(tmp_path: Path, redirection: str) -> None:
    (tmp_path / "s.py").write_text("open('out', 'w').write('done')\n")
    command = f"exec {sys.executable} -m recoup run --budget 1MiB s.py {redirection}"
    done = subprocess.run(
        ["/bin/sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "out").read_text() == "done"


def test_a_file_opened_as_descriptor_2_gets_no_line_of_recoup(tmp_path: Path) -> None:
    result = run(tmp_path, "import os\nos.close(2)\nprint(open('precious', 'w').fileno())\n")
    assert (result.returncode, result.stdout, result.stderr) == (0, "2\n", "")
    assert (tmp_path / "precious").read_text() == ""


# ---- the report ----


def test_every_field_of_stats_is_in_one_group() -> None:
    grouped = [name for names in STATS_GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(field.name for field in fields(recoup.Stats))
    values = stats_of(replays=7, spills=3)
    groups = values.to_groups()
    assert list(groups) == ["memory", "work", "time", "tier", "planning", "metadata"]
    assert {k: v for group in groups.values() for k, v in group.items()} == values.to_dict()


def test_report(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    report.write_text("old")
    (tmp_path / "script.py").write_text(textwrap.dedent(TRAIN))
    result = cli(
        "run", "--budget", "64MiB", "--policy", "lru", "--option", "seed=5", "--quiet",
        "--report", report, "script.py", "arg", cwd=tmp_path,
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (0, "")
    data = json.loads(report.read_text())
    assert list(data) == [
        "title", "command", "versions", "settings", "wall_ns", "device", "budget_changes",
        "shared_budget", "failures", "stats", "peak", "modules", "pinned", "step_ratio",
    ]  # fmt: skip
    assert (data["title"], data["device"]) == ("script.py arg", "cpu")
    assert data["command"] == ["script.py", "arg"]
    settings = data["settings"]
    assert (settings["policy"], settings["seed"], settings["budget"]) == ("lru", 5, 64 << 20)
    assert settings["planning"] == "background" and settings["spill"] is None
    assert data["versions"]["recoup"] == recoup.__version__
    assert set(data["versions"]) == {"recoup", "PyTorch", "Python", "ops intercepted at", "system"}
    assert data["wall_ns"] > 0
    counts = {name: n for group in data["stats"].values() for name, n in group.items()}
    assert recoup.Stats.from_engine(counts).budget_bytes == 64 * 2**20
    fields = {"bytes", "values", "by", "kind", "op", "module", "why"}
    assert set().union(*data["pinned"]) == fields
    assert sum(row["bytes"] for row in data["peak"]["rows"]) == data["peak"]["bytes"]
    assert data["peak"]["bytes"] == data["stats"]["memory"]["peak_bytes"]
    assert {"Linear", "SGD"} <= {row["module"] for row in data["modules"]}
    # No other file is left, and the report has the permissions of other files.
    assert sorted(os.listdir(tmp_path)) == ["report.json", "script.py"]
    assert report.stat().st_mode == (tmp_path / "script.py").stat().st_mode


def test_a_page_and_a_timeline(tmp_path: Path) -> None:
    result = run(tmp_path, TRAIN, "--report", "r.html", "--timeline", "t.json")
    assert result.returncode == 0, result.stderr
    last = result.stderr.splitlines()[-1]
    assert last.endswith(f"report in {tmp_path / 'r.html'}, timeline in {tmp_path / 't.json'}")
    page = (tmp_path / "r.html").read_text()
    assert page.startswith("<!DOCTYPE html>") and "Linear" in page and "script.py" in page
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert sum(event["ph"] == "i" and event.get("s") == "g" for event in events) == 3  # steps
    assert any("addmm" in event["name"] for event in events)


def test_a_page_shows_the_suggestions(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(textwrap.dedent(TRAIN), encoding="utf-8")
    suggested = cli("suggest", "--json", "s.json", "script.py", cwd=tmp_path)
    assert suggested.returncode == 0, suggested.stderr
    found = json.loads((tmp_path / "s.json").read_text())
    result = run(tmp_path, TRAIN, "--report", "r.html", "--suggestions", "s.json")
    assert result.returncode == 0, result.stderr
    page = (tmp_path / "r.html").read_text()
    rows = read_suggestions(tmp_path / "s.json")
    assert [row["budget_bytes"] for row in rows] == [
        each["budget_bytes"] for each in found["predictions"]
    ]
    assert {row["mark"] for row in rows} >= {"least"}
    assert "knee" in page or "least" in page


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"predictions": 3}', "[" * 5000, "\0"])
def test_suggestion_files_of_another_format_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "s.json").write_text(text)
    with pytest.raises(ValueError, match="was not written by `recoup suggest --json`"):
        read_suggestions(tmp_path / "s.json")


def test_suggestions_need_a_page(tmp_path: Path) -> None:
    result = run(tmp_path, TRAIN, "--suggestions", "s.json")
    assert result.returncode == 2
    assert "--suggestions needs an HTML report: add --report FILE.html" in result.stderr


def test_lines_of_the_program_are_in_the_report(tmp_path: Path) -> None:
    result = run(tmp_path, TRAIN, "--report", "r.json", "--lines")
    assert result.returncode == 0, result.stderr
    lines = json.loads((tmp_path / "r.json").read_text())["peak"]["lines"]
    assert lines and all("script.py:" in row["line"] for row in lines)
    result = run(tmp_path, TRAIN, "--lines")
    assert result.returncode == 2
    assert "--lines needs a report: add --report FILE.json" in result.stderr


@pytest.mark.parametrize("report", ["r.html", "r.json"])
def test_ctrl_c_ends_a_program_with_a_report_as_without(tmp_path: Path, report: str) -> None:
    text = "import torch\ntorch.ones(3)\nraise KeyboardInterrupt\n"
    result = run(tmp_path, text, "--report", report, "--quiet")
    assert result.returncode == -signal.SIGINT
    assert (tmp_path / report).exists()


def test_the_program_is_not_overwritten(tmp_path: Path) -> None:
    for flag in ("--report", "--trace", "--timeline"):
        result = run(tmp_path, TRAIN, flag, "./script.py")
        assert result.returncode == 2
        assert f"{flag} would overwrite the program: script.py" in result.stderr
        assert "import torch" in (tmp_path / "script.py").read_text()


def test_two_outputs_cannot_have_the_same_name(tmp_path: Path) -> None:
    result = run(tmp_path, TRAIN, "--report", "r.json", "--timeline", "./r.json")
    assert result.returncode == 2
    assert "--report and --timeline name the same file: use two files" in result.stderr


def test_output_paths_are_relative_to_the_initial_folder(
    tmp_path: Path,
) -> None:
    (tmp_path / "away").mkdir()
    text = "import os\nos.chdir('away')\n1 / 0\n"
    files = ("--report", "r.json", "--trace", "t.rtrace")
    result = run(tmp_path, text, *files, "--max-replay-ratio", "inf")
    assert result.returncode == 1
    assert sorted(os.listdir(tmp_path)) == ["away", "r.json", "script.py", "t.rtrace"]
    data = json.loads((tmp_path / "r.json").read_text())
    assert "stats" in data
    # JSON has no infinity.
    assert data["settings"]["max_replay_ratio"] == "inf"


def test_report_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    text = "import os; os.mkdir('gone/r.json')"
    result = run(tmp_path, text, "--report", "gone/r.json", "--quiet")
    assert result.returncode == NOT_WRITTEN
    assert result.stderr.startswith("recoup run: cannot write the report: ")
    assert result.stderr.count("\n") == 1
    (tmp_path / "gone/r.json").rmdir()
    result = run(tmp_path, text, "--report", "gone/r.json")
    # The summary does not name a file that was not written.
    assert result.stderr.splitlines()[-1] == "recoup: 0 replays"


def test_a_trace_is_written_although_the_exit_does_not_fit(tmp_path: Path) -> None:
    text = "import torch\nmade = [torch.arange(65536.).mul(i) for i in range(20)]"
    result = run(tmp_path, text, "--trace", "run.rtrace", "--quiet", budget="2MiB")
    assert (result.returncode, result.stderr) == (0, "")
    assert recoup.Trace.read(tmp_path / "run.rtrace").op_count >= 40
