"""tools/gpu_first_hour without a GPU: time limits, kills, resumption, its file and its page."""

import json
import os
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import fakegpu

ROOT = Path(__file__).parents[3]
TOOL = ROOT / "tools/gpu_first_hour"

# Runs checks of the test instead of the plan's: name=program=seconds.
DRIVER = """
import json, sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])
import plan, results, runner

torch, out, seconds, no_gpu, *checks = sys.argv[2:]
plan.CHECKS = tuple(
    plan.Check(name, 1, program, int(limit), "About it.", needs_gpu=name.startswith("gpu"))
    for name, program, limit in (each.split("=") for each in checks)
)
settings = {"gpu": "none", "torch": torch, "rehearsal": False}
found = results.Outcomes.open(Path(out) / "results.json", settings)
place = runner.Place(Path(out), "cuda:0", False, no_gpu, False)
runner.Runner(place, found).run(list(plan.CHECKS), float(seconds))
"""

QUICK = 'from rows import report\nreport("first", ms=1.5)\nreport("first", ms=2.5)\n'
FAILS = 'raise SystemExit("it is wrong")\n'
CRASHES = 'from rows import report\nreport("before")\nimport os\nos.kill(os.getpid(), 11)\n'
HANGS = """
import subprocess, time
from rows import report
child = subprocess.Popen(["sleep", "100"])
report("before", child=child.pid)
time.sleep(100)
"""
SKIPS = 'from rows import skip\nskip("there is no tool")\n'


class Hour:
    """Runs of the script with the same output folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.torch = "2.13.0"
        self.out = folder / "out"
        self.out.mkdir()

    def command(self, seconds: float, no_gpu: str, **programs: tuple[str, int]) -> list[str]:
        checks = []
        for name, (text, limit) in programs.items():
            path = self.folder / f"{name}.py"
            path.write_text(text)
            checks.append(f"{name}={path}={limit}")
        return [
            sys.executable,
            "-c",
            DRIVER,
            str(TOOL),
            self.torch,
            str(self.out),
            str(seconds),
            no_gpu,
            *checks,
        ]

    def run(self, seconds: float = 60, no_gpu: str = "", **programs: tuple[str, int]) -> str:
        done = subprocess.run(
            self.command(seconds, no_gpu, **programs), capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def outcomes(self) -> dict[str, Any]:
        found = json.loads((self.out / "results.json").read_text())
        assert found["benchmark"] == "gpu_first_hour"
        return dict(found["outcomes"])

    def page(self) -> str:
        text = (self.out / "page.html").read_text()
        HTMLParser().feed(text)
        assert "http" not in text  # the page needs no network
        return text


@pytest.fixture
def hour(tmp_path: Path) -> Hour:
    return Hour(tmp_path)


def is_alive(process: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_failing_check_does_not_end_the_others(hour: Hour) -> None:
    hour.run(
        crash=(CRASHES, 20),
        hang=(HANGS, 2),
        fail=(FAILS, 20),
        skipped=(SKIPS, 20),
        last=(QUICK, 20),
    )
    found = hour.outcomes()
    assert {name: row["status"] for name, row in found.items()} == {
        "crash": "failed",
        "hang": "time limit",
        "fail": "failed",
        "skipped": "skipped",
        "last": "ok",
    }
    assert found["crash"]["reason"].startswith("ended by SIGSEGV")
    assert found["crash"]["rows"] == [{"row": "before"}]
    assert found["fail"]["reason"] == "it is wrong"
    assert found["skipped"]["reason"] == "there is no tool"
    assert found["last"]["rows"] == [{"row": "first", "ms": 2.5}]
    assert not is_alive(found["hang"]["rows"][0]["child"])
    page = hour.page()
    for text in (*found, "ended by SIGSEGV", "it is wrong", "killed after 2 s", "<td>2.5</td>"):
        assert text in page


def test_a_finished_check_does_not_run_again(hour: Hour) -> None:
    hour.run(ok=(QUICK, 20), fail=(FAILS, 20), skipped=(SKIPS, 20))
    said = hour.run(ok=(FAILS, 20), fail=(QUICK, 20), skipped=(QUICK, 20))
    assert said.count("done before") == 2
    statuses = [row["status"] for row in hour.outcomes().values()]
    assert statuses == ["ok", "failed", "ok"]  # the skipped check has run


def test_checks_beyond_the_total_time_are_left_for_the_next_run(hour: Hour) -> None:
    checks = {"hang": (HANGS, 60), "late": (QUICK, 20)}
    start = time.monotonic()
    hour.run(seconds=12, **checks)
    assert time.monotonic() - start < 40
    found = hour.outcomes()
    assert [row["status"] for row in found.values()] == ["no time left", "no time left"]
    assert found["hang"]["rows"] and not found["late"]["rows"]
    hour.run(hang=(QUICK, 20), late=(QUICK, 20))
    assert [row["status"] for row in hour.outcomes().values()] == ["ok", "ok"]


def test_checks_of_a_gpu_are_skipped_without_one(hour: Hour) -> None:
    hour.run(no_gpu="PyTorch sees no GPU", gpu_check=(FAILS, 20), other=(QUICK, 20))
    found = hour.outcomes()
    assert [row["status"] for row in found.values()] == ["skipped", "ok"]
    assert found["gpu_check"]["reason"] == "PyTorch sees no GPU"
    assert "PyTorch sees no GPU" in hour.page()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_kill_keeps_the_results_so_far(hour: Hour, number: signal.Signals) -> None:
    command = hour.command(60, "", quick=(QUICK, 20), hang=(HANGS, 60))
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        for _ in range(300):
            time.sleep(0.1)
            if (hour.out / "results.json").exists() and hour.outcomes().get("hang", {}).get("rows"):
                break
        process.send_signal(number)
    found = hour.outcomes()
    assert [row["status"] for row in found.values()] == ["ok", "running"]
    child = found["hang"]["rows"][0]["child"]
    assert "running" in hour.page()
    if number == signal.SIGKILL:  # the script could not kill its child
        os.kill(child, signal.SIGKILL)
    else:
        assert not is_alive(child)
    said = hour.run(quick=(FAILS, 20), hang=(QUICK, 20))
    assert "quick: done before" in said
    assert [row["status"] for row in hour.outcomes().values()] == ["ok", "ok"]


def test_an_old_pytorch_is_on_the_page(hour: Hour) -> None:
    hour.run(quick=(QUICK, 20))
    assert "older than" not in hour.page()
    hour.torch = "2.12.1+cu130"
    (hour.out / "results.json").unlink()
    hour.run(quick=(QUICK, 20))
    assert "PyTorch 2.12.1+cu130 is older than 2.13, which recoup requires" in hour.page()


def test_results_of_another_machine_are_refused(hour: Hour) -> None:
    hour.run(quick=(QUICK, 20))
    path = hour.out / "results.json"
    path.write_text(path.read_text().replace('"none"', '"some GPU"'))
    command = hour.command(60, "", quick=(QUICK, 20))
    done = subprocess.run(command, capture_output=True, text=True)
    assert "was measured with gpu = some GPU, not none" in done.stderr


def tool(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, str(TOOL), *arguments], capture_output=True, text=True, timeout=300
    )


def test_the_plan_fits_into_its_time() -> None:
    program = """
import json, plan
from pathlib import Path
assert max(plan.PART_SECONDS.values()) <= 9 * 60
names = [check.name for check in plan.CHECKS]
assert len(names) == len(set(names))
for check in plan.CHECKS:
    assert check.part in plan.PART_SECONDS and check.seconds <= plan.PART_SECONDS[check.part]
    assert (Path("checks") / check.program).is_file(), check
print(json.dumps([plan.PART_SECONDS, plan.TOTAL_SECONDS]))
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=TOOL, capture_output=True, text=True, check=True)
    parts, total = json.loads(done.stdout)
    page, *others = (
        (ROOT / name).read_text()
        for name in ("docs/first-gpu-hour.md", "tools/gpu_first_hour.sh", f"{TOOL}/__main__.py")
    )
    assert all(f" {total // 60} minutes" in text for text in (page, *others))
    *most, last = (seconds // 60 for seconds in parts.values())
    assert f"end within {', '.join(map(str, most))} and {last} minutes" in page


@pytest.mark.skipif(fakegpu.path_of_extension() is None, reason="`make test-device` was not run")
def test_a_rehearsal_trains_and_resumes(tmp_path: Path) -> None:
    """The whole rehearsal takes minutes: tools/gpu_first_hour.sh --rehearsal."""
    arguments = ("--rehearsal", "--no-build", "--out", str(tmp_path), "--only")
    checks = ("gpt2 in 50 %", "largest batch of resnet50, plain", "two processes", "replays")
    done = tool(*arguments, *checks)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "results.json").read_text())["outcomes"]
    row = found[checks[0]]["rows"][0]
    assert row["bits"] == "equal" and row["pairs"] == 5 and row["evictions"] > 0
    assert found[checks[1]]["rows"][-1]["batch"] >= 16
    *trained, together = found["two processes"]["rows"]
    assert [each["bits"] for each in trained] == ["equal", "equal"]
    assert all(each["evictions"] > 0 for each in trained) and together["budget GiB"] > 0
    assert all(each["replay us"] > 0 for each in found["replays"]["rows"])
    assert "A rehearsal: sizes are tiny" in (tmp_path / "page.html").read_text()
    again = tool(*arguments, *checks)
    assert again.stdout.count("done before") == len(checks)


def test_mistakes_are_reported(tmp_path: Path) -> None:
    done = tool("--out", str(tmp_path), "--only", "nothing")
    assert done.returncode == 2 and "no check 'nothing'" in done.stderr
    (tmp_path / "results.json").write_text("{}")
    done = tool("--out", str(tmp_path), "--part", "3")
    assert done.returncode == 2 and "was not written by `gpu_first_hour`" in done.stderr
