"""Signals to commands that run a program."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import warm_python

PROGRAM = """
import os, signal, time
open("pid", "w").write(str(os.getpid()))
print("ready", flush=True)
time.sleep(600)
"""
COMMANDS = {
    "suggest": ["suggest", "program.py"],
    "verify": ["verify", "program.py", "--", "--budget", "64MiB"],
}


def start(folder: Path, command: list[str], program: str = PROGRAM) -> "subprocess.Popen[str]":
    """The command, when its program runs. Its temporary folders are in folder/tmp."""
    (folder / "program.py").write_text(program, encoding="utf-8")
    (folder / "tmp").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "recoup", *command],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "TMPDIR": str(folder / "tmp")},
        start_new_session=True,
    )
    assert process.stdout is not None
    while process.stdout.readline() != "ready\n":
        assert process.poll() is None
    return process


def ended(folder: Path) -> bool:
    """Whether the program's process is gone, or a zombie."""
    pid = int((folder / "pid").read_text())
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_until(condition: Callable[[], bool]) -> bool:
    for _ in range(1200):
        if condition():
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=["term", "int"]
)
def test_a_signal_to_the_command_alone_ends_its_program(
    tmp_path: Path, command: str, number: signal.Signals, code: int
) -> None:
    with start(tmp_path, COMMANDS[command]) as process:
        process.send_signal(number)
        output, _ = process.communicate(timeout=120)
    assert process.returncode == code
    assert ended(tmp_path)
    assert list((tmp_path / "tmp").glob("recoup-*")) == []
    assert "recoup/commands" not in output  # no traceback of recoup


@pytest.mark.parametrize("command", COMMANDS)
def test_a_program_ends_with_a_command_that_is_killed(tmp_path: Path, command: str) -> None:
    with start(tmp_path, COMMANDS[command]) as process:
        process.kill()
        process.wait(timeout=120)
        assert wait_until(lambda: ended(tmp_path))


def test_a_second_signal_kills_a_program_that_ignores_the_first(tmp_path: Path) -> None:
    ignoring = PROGRAM.replace(
        "import os, signal, time", "import os, signal, time\nsignal.signal(15, print)"
    )
    with start(
        tmp_path,
        COMMANDS["suggest"],
        ignoring.replace("time.sleep(600)", "[time.sleep(1) for _ in range(600)]"),
    ) as process:
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        assert process.stdout.readline().startswith("15 ")  # the program goes on
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)
    assert process.returncode == 143
    assert ended(tmp_path)


def test_an_ignored_signal_stays_ignored(tmp_path: Path) -> None:
    short = PROGRAM.replace("time.sleep(600)", "time.sleep(1)")
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        process = start(tmp_path, COMMANDS["suggest"], short)
    finally:
        signal.signal(signal.SIGTERM, before)
    with process:
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=120)
    assert process.returncode not in (143, -signal.SIGTERM), output


SHORT_TRAINING = """
import torch
net = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(20)])
optimizer = torch.optim.Adam(net.parameters())
for _ in range(20):
    optimizer.zero_grad()
    net(torch.randn(64, 64)).square().mean().backward()
    optimizer.step()
"""


def test_ctrl_c_ends_simulations(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SHORT_TRAINING, encoding="utf-8")
    recoup = [warm_python.REAL, "-m", "recoup"]  # its own threads are seen
    recorded = [*recoup, "run", "--trace", "t.rtrace", "train.py"]
    subprocess.run(recorded, cwd=tmp_path, capture_output=True, check=True)
    budgets = ",".join(map(str, range(99, 19, -1)))
    # Simulations of this many policies take minutes.
    many = [*recoup, "simulate", "t.rtrace", "--budgets", budgets, "--policy", "all"]
    with subprocess.Popen(
        many, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        tasks = Path(f"/proc/{process.pid}/task")
        assert wait_until(lambda: len(list(tasks.iterdir())) > 2)  # it simulates
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=120)
    assert (process.returncode, output) == (130, "recoup simulate: interrupted\n")


INTERRUPTED_WHILE_IT_LOCKS = """
import sys, threading
from recoup.commands import cli, policies_command
from recoup.commands.bench import small
def interrupted(*_, **__):
    lock = threading.Lock()
    with lock:
        lock.release()
        raise KeyboardInterrupt  # and then a RuntimeError: release unlocked lock
policies_command.policies = small.run = interrupted
sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.mark.parametrize("command", ["policies", "bench"])
def test_an_interrupt_that_breaks_a_lock_is_an_interrupt(command: str) -> None:
    process = [sys.executable, "-c", INTERRUPTED_WHILE_IT_LOCKS, command]
    result = subprocess.run(process, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (130, f"recoup {command}: interrupted\n")


# ---- recoup run: SIGTERM writes the files, unless the program has a handler ----

RUN = ["run", "--budget", "64MiB", "--report", "run.json", "--trace", "run.rtrace", "program.py"]
TRAINS = """
import multiprocessing, os, signal, subprocess, sys, time
import torch
def work():
    global kept
    kept = [torch.ones(1000).exp()]
    print("ready", flush=True)
    while True:
        kept[0] = (kept[0] * 0.5).exp()
"""


def terminate(folder: Path, body: str, signals: int = 1) -> tuple[int, str]:
    """Sends SIGTERM to the program after it said "ready"; returns its exit code and its output."""
    with start(folder, RUN, TRAINS + body) as process:
        assert process.stdout is not None
        for number in range(signals):
            if number:
                while process.stdout.readline() != "again\n":
                    assert process.poll() is None
            process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=120)
    return process.returncode, output


def test_sigterm_writes_the_summary_and_the_files(tmp_path: Path) -> None:
    code, output = terminate(
        tmp_path, "try:\n    work()\nfinally:\n    print('cleaned up', flush=True)"
    )
    assert code == -signal.SIGTERM
    lines = output.splitlines()
    assert lines[0] == "recoup run: SIGTERM ends the program; a second one ends it at once"
    assert lines[1] == "cleaned up"
    assert lines[2].startswith("recoup: peak ")
    assert "Traceback" not in output
    report = json.loads((tmp_path / "run.json").read_text())
    assert report["stats"]["work"]["op_count"] > 0
    assert [failure["type"] for failure in report["failures"]] == [
        "recoup.commands.programs.Terminated"
    ]
    simulated = subprocess.run(
        [sys.executable, "-m", "recoup", "simulate", "run.rtrace", "--budgets", "100"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert simulated.returncode == 0, simulated.stderr


@pytest.mark.parametrize("wait", ["time.sleep(600)", "multiprocessing.Queue().get()", "input()"])
def test_sigterm_ends_a_program_that_waits(tmp_path: Path, wait: str) -> None:
    read, write = os.pipe()
    try:
        stdin = os.dup(0)
        os.dup2(read, 0)
        code, output = terminate(tmp_path, f"print('ready', flush=True)\n{wait}")
    finally:
        os.dup2(stdin, 0)
        for each in (stdin, read, write):
            os.close(each)
    assert code == -signal.SIGTERM
    assert (tmp_path / "run.json").exists(), output


HANDLES = """
assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
assert before is signal.SIG_DFL
work()
"""


def test_a_handler_of_the_program_replaces_that_of_recoup(tmp_path: Path) -> None:
    code, output = terminate(tmp_path, HANDLES)
    assert code == 7
    assert "SIGTERM" not in output
    assert (tmp_path / "run.json").exists()


def test_a_program_that_restores_the_default_restores_the_handler_of_recoup(
    tmp_path: Path,
) -> None:
    body = """
before = signal.signal(signal.SIGTERM, lambda *_: None)
assert signal.signal(signal.SIGTERM, before) is not signal.SIG_DFL
assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
work()
"""
    code, _ = terminate(tmp_path, body)
    assert code == -signal.SIGTERM
    assert (tmp_path / "run.json").exists()


def test_a_second_sigterm_ends_a_program_that_goes_on(tmp_path: Path) -> None:
    body = """
while True:
    try:
        work()
    except BaseException:
        print("again", flush=True)
"""
    code, _ = terminate(tmp_path, body, signals=2)
    assert code == -signal.SIGTERM
    assert not (tmp_path / "run.json").exists()


def test_children_end_by_sigterm_as_without_recoup(tmp_path: Path) -> None:
    body = """
child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
child.start()
child.terminate()
child.join()
assert child.exitcode == -15, child.exitcode
other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
other.terminate()
assert other.wait() == -15
work()
"""
    code, output = terminate(tmp_path, body)
    assert code == -signal.SIGTERM, output
