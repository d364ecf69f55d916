"""Signals to commands that run a program in another process."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

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
