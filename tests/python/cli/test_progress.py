"""`recoup run --progress` in a terminal: the row of progress and the program's lines do not mix."""

import signal
import subprocess
import time
from pathlib import Path

import pytest

from command import cli
from terminal import Terminal, run_in_terminal

ROWS = 9
RUN = ["-m", "recoup", "run", "--budget", "64MiB", "--progress"]

# All ways to print that bypass `sys.stdout`; meanwhile the row is drawn four times.
NOISY = """
import logging, os, subprocess, sys, time
handler = logging.StreamHandler(sys.stderr)
logging.getLogger().addHandler(handler)
old = sys.stdout
for i in range(14):
    print(f"out {i}")
    sys.stderr.write(f"err {i}\\n")
    os.write(1, f"descriptor one {i}\\n".encode())
    os.write(2, f"descriptor two {i} ".encode())
    time.sleep(0.06)
    os.write(2, b"in two parts\\n")
    print("\\x1b[31mred, ", end="", flush=True)
    time.sleep(0.06)
    print("and still red\\x1b[0m")
    logging.warning("logged %d", i)
    print("x" * 100)
    print("y" * 101)
sys.stdout = open(os.devnull, "w")
print("a child prints", file=old, flush=True)
subprocess.run([sys.executable, "-c", "print('child'); import os; os.write(2, b'child two\\\\n')"])
from tqdm import tqdm
for i in tqdm(range(40), mininterval=0, file=sys.stderr, ncols=50, bar_format="{n}/{total}|{bar}|"):
    if i % 10 == 0:
        time.sleep(0.15)
        os.write(1, f"\\rover the bar {i}\\n".encode())
print("the last line", file=old)
"""


def write(folder: Path, text: str) -> str:
    (folder / "script.py").write_text(text, encoding="utf-8")
    return "script.py"


def ours(line: str) -> bool:
    return line.startswith("recoup: ")


@pytest.mark.parametrize(("rows", "before"), [(ROWS, 0), (30, 100)])
def test_no_line_of_the_program_is_lost(tmp_path: Path, rows: int, before: int) -> None:
    script = write(tmp_path, NOISY)
    want = run_in_terminal([script], tmp_path, rows - 1, before=before)
    got = run_in_terminal([*RUN, script], tmp_path, rows, before=before)
    assert got.code == want.code == 0
    lines = got.lines()
    of_program = lines.index("the last line") + 1
    assert lines[:of_program] == want.lines()
    assert [ours(line) for line in lines[of_program:]] == [True] * 4
    assert lines[of_program].startswith("recoup: 0 steps, ")
    assert got.screen.margins is None
    # The row was drawn while the program printed.
    before_the_end = got.output[: got.output.index(b"the last line")]
    assert before_the_end.count(b"recoup: 0 steps, ") > 3


def test_the_row_is_at_the_bottom_and_is_updated(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        "import time, torch\n"
        "weight = torch.nn.Parameter(torch.ones(8))\n"
        "optimizer = torch.optim.SGD([weight], lr=0.1)\n"
        "for step in range(12):\n"
        "    weight.sum().backward()\n"
        "    optimizer.step()\n"
        "    print(f'line {step}', flush=True)\n"
        "    time.sleep(0.15)\n",
    )
    got = run_in_terminal([*RUN, script], tmp_path, ROWS)
    during = [screen for screen in got.seen if "line 3" in screen or "line 10" in screen]
    during = during[: next(i for i, screen in enumerate(during) if "line 11" in screen)]
    assert all([ours(line) for line in screen] == [False] * 8 + [True] for screen in during)
    assert len({screen[-1] for screen in during}) >= 2
    assert [line for line in got.lines() if not ours(line)] == [f"line {i}" for i in range(12)]


def test_a_line_without_an_end_is_kept(tmp_path: Path) -> None:
    script = write(tmp_path, "import sys\nprint('a')\nsys.stderr.write('no end')\n")
    got = run_in_terminal([*RUN, script], tmp_path, ROWS)
    first, second, *rest = got.lines()
    assert (first, second) == ("a", "no end")
    assert len(rest) == 4 and all(map(ours, rest))


@pytest.mark.parametrize(
    "ending",
    [
        "os._exit(3)",
        "os.kill(os.getpid(), signal.SIGKILL)",
        "os.fork() or time.sleep(2); os._exit(4)",
    ],
)
def test_the_row_is_removed_however_the_program_ends(tmp_path: Path, ending: str) -> None:
    script = write(
        tmp_path, f"import os, signal, subprocess, time\nprint('up', flush=True)\n{ending}\n"
    )
    got = run_in_terminal([*RUN, script], tmp_path, ROWS)
    assert got.code != 0
    assert got.lines() == ["up"]
    assert got.screen.margins is None or got.screen.margins.bottom == ROWS - 1


def test_the_row_is_removed_by_sigterm(tmp_path: Path) -> None:
    ending = "subprocess.Popen(['sleep', '1']); os.kill(os.getpid(), signal.SIGTERM)"
    script = write(tmp_path, f"import os, signal, subprocess\nprint('up', flush=True)\n{ending}\n")
    got = run_in_terminal([*RUN, script], tmp_path, ROWS)
    assert got.code != 0
    first, second, *rest = got.lines()
    assert (first, second.startswith("recoup run: SIGTERM")) == ("up", True)
    assert len(rest) == 4 and all(map(ours, rest))
    assert got.screen.margins is None or got.screen.margins.bottom == ROWS - 1


def test_the_guard_process_is_not_a_child_of_the_program(tmp_path: Path) -> None:
    script = write(
        tmp_path, "import os\ntry: os.wait()\nexcept ChildProcessError: print('no child')\n"
    )
    assert run_in_terminal([*RUN, script], tmp_path, ROWS).lines()[0] == "no child"


def test_ctrl_c_leaves_the_traceback_in_one_piece(tmp_path: Path) -> None:
    script = write(tmp_path, "import time\nprint('ready', flush=True)\ntime.sleep(60)\n")
    sent: list[bool] = []

    def interrupt(terminal: Terminal, process: subprocess.Popen[bytes]) -> None:
        if not sent and "ready" in terminal.seen[-1]:
            time.sleep(0.3)  # the print may come a moment before the sleep
            sent.append(True)
            process.send_signal(signal.SIGINT)

    got = run_in_terminal([*RUN, script], tmp_path, 20, watch=interrupt)
    assert got.code == -signal.SIGINT
    lines = got.lines()
    end = lines.index("KeyboardInterrupt")
    assert not any(map(ours, lines[:end]))
    assert [ours(line) for line in lines[end + 1 :]] == [True] * 4


def test_a_program_that_closes_stderr_gets_no_line_of_recoup(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        "import os, time\n"
        "os.close(2)\n"
        "file = open('precious', 'w')\n"
        "assert file.fileno() == 2\n"
        "time.sleep(1.2)\n",
    )
    got = run_in_terminal([*RUN, script], tmp_path, ROWS)
    assert got.code == 0
    assert (tmp_path / "precious").read_text() == ""
    assert got.lines() == []


def test_a_program_that_closes_all_files_gets_no_line_in_its_own_files(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        "import os, time\n"
        "os.closerange(3, 100)\n"
        "files = [open(f'precious {i}', 'w') for i in range(20)]\n"
        "time.sleep(1.2)\n"
        "print('goes on')\n",
    )
    got = run_in_terminal([*RUN, script], tmp_path, ROWS)
    assert got.code == 0
    assert got.lines()[0] == "goes on"
    assert [path.read_text() for path in tmp_path.glob("precious *")] == [""] * 20
    assert got.screen.margins is None


def test_without_a_terminal_progress_is_plain_lines(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        "import torch\n"
        "weight = torch.nn.Parameter(torch.ones(8))\n"
        "weight.sum().backward()\n"
        "for _ in range(3):\n"
        "    torch.optim.SGD([weight], lr=0.1).step()\n"
        "print('out')\n",
    )
    result = cli(*RUN[2:], script, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (0, "out\n")
    # On a slow machine there are lines before the last step.
    *earlier, progress = result.stderr.splitlines()[:-3]
    assert all(line.startswith("recoup: ") and " steps, " in line for line in earlier)
    assert progress.startswith("recoup: 3 steps, ")
    assert " of 64.0 MiB | " in progress and progress.endswith("0 replays, 0/s")
    assert "\x1b" not in result.stderr and "\r" not in result.stderr


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_terminal_that_cannot_move_its_cursor_gets_lines(tmp_path: Path, term: str) -> None:
    script = write(tmp_path, "print('out')\n")
    got = run_in_terminal([*RUN, script], tmp_path, ROWS, environment={"TERM": term})
    assert got.lines()[0] == "out"
    assert [ours(line) for line in got.lines()[1:]] == [True] * 4
    assert all(not ours(screen[-1]) for screen in got.seen[:1])


def test_the_row_follows_the_size_of_the_terminal(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        "import fcntl, os, struct, termios, time\n"
        "print('small', flush=True)\n"
        "time.sleep(0.7)\n"
        "fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack('HHHH', 12, 100, 0, 0))\n"
        "time.sleep(0.7)\n"
        "print('large', flush=True)\n"
        "time.sleep(0.7)\n",
    )
    got = run_in_terminal([*RUN, script], tmp_path, ROWS)
    large = [screen for screen in got.seen if "large" in screen]
    assert len(large[0]) == 12 and ours(large[0][-1])
    assert [line for line in got.lines() if line and not ours(line)] == ["small", "large"]
