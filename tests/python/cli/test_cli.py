"""The command line, run in a new process as a user runs it."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import recoup
from command import cli, cli_here, refused
from recoup.commands.exit_codes import OUT_OF_BUDGET

RUN_QUIETLY = ["-m", "recoup", "run", "--budget", "64MiB", "--quiet"]


def plain(*args: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, args)], capture_output=True, text=True, check=False, **options
    )


def write(folder: Path, text: str, name: str = "script.py") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


def both(args: Sequence[str | Path], cwd: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs with and without recoup, asserts equal results, and returns them."""
    want = plain(*args, cwd=cwd, **options)
    got = cli("run", "--budget", "64MiB", "--quiet", *args, cwd=cwd, **options)
    assert (got.returncode, got.stdout, got.stderr) == (want.returncode, want.stdout, want.stderr)
    return got


# ---- programs behave as without recoup ----


def test_a_script_sees_its_usual_surroundings(tmp_path: Path) -> None:
    write(tmp_path, "VALUE = 7", "deep/neighbour.py")
    write(
        tmp_path,
        """
        import __main__, pickle, sys
        import neighbour
        class Thing: pass
        print(sys.argv, sys.path[0], __name__, __file__, __package__, __spec__, __doc__)
        print(sorted(vars(__main__)), __main__.Thing is Thing, __builtins__)
        print(type(pickle.loads(pickle.dumps(Thing()))) is Thing, neighbour.VALUE)
        print([name for name in sys.modules if name == "recoup.nothing"], __loader__.path)
        """,
        "deep/script.py",
    )
    # Arguments that look like options of recoup belong to the program.
    args = ["deep/script.py", "--budget", "x", "-m", "--", "--help", "two words", ""]
    assert "two words" in both(args, tmp_path).stdout


def test_module(tmp_path: Path) -> None:
    write(tmp_path, "", "package/__init__.py")
    source = "import sys; print(sys.argv, sys.path[0], __name__, __package__, __spec__.name)"
    write(tmp_path, source, "package/__main__.py")
    write(tmp_path, source + "\n1 / 0", "package/tool.py")
    assert "package" in both(["-m", "package", "a", "--progress"], tmp_path).stdout
    result = cli("run", "--budget", "64MiB", "--quiet", "-m", "package.tool", cwd=tmp_path)
    assert result.returncode == 1
    # Python itself shows two frames of runpy first.
    assert len([line for line in result.stderr.splitlines() if "File" in line]) == 1
    assert result.stderr.endswith("ZeroDivisionError: division by zero\n")


def test_code_and_standard_input(tmp_path: Path) -> None:
    write(tmp_path, "VALUE = 7", "neighbour.py")
    source = (
        "import __main__, sys, neighbour\n"
        "print(sys.argv, sys.path[0], __name__, neighbour.VALUE, sorted(vars(__main__)))\n"
        "1 / 0"
    )
    assert "['-c', 'a', '--progress']" in both(["-c", source, "a", "--progress"], tmp_path).stdout
    assert "['-', 'a', '-c']" in both(["-", "a", "-c"], tmp_path, input=source).stdout
    said = cli("run", "--budget", "1MiB", "-c", "-m", "1", cwd=tmp_path)
    assert "-c and -m cannot be combined" in said.stderr


def test_folder_with_a_main(tmp_path: Path) -> None:
    write(tmp_path, "import sys, other; print(sys.argv, sys.path[0], __name__)", "app/__main__.py")
    write(tmp_path, "", "app/other.py")
    want = plain("app", "arg", cwd=tmp_path)
    got = cli("run", "--budget", "64MiB", "app", "arg", cwd=tmp_path)
    # With recoup, sys.argv[0] is the absolute path of the folder.
    assert got.stdout == want.stdout.replace("['app'", f"['{tmp_path / 'app'}'")


@pytest.mark.parametrize(
    "statement",
    [
        "pass",
        "sys.exit()",
        "sys.exit(0)",
        "sys.exit(3)",
        "sys.exit('a message')",
        "raise SystemExit((1, 2))",
        "os._exit(5)",
        "os.kill(os.getpid(), signal.SIGTERM)",
        "raise KeyboardInterrupt",
        "1 / 0",
        "inner()",
        "raise ExceptionGroup('many', [ValueError(1)])"
        if sys.version_info >= (3, 11)
        else "raise ValueError",
        "sys.excepthook = lambda *args: print('hook', args[0], args[1], args[2].tb_lineno)\n1 / 0",
        "atexit.register(lambda: print('bye'))\nprint('hello')",
        "threading.Timer(0.2, lambda: print('late', sys.argv)).start()",
    ],
)
def test_a_program_ends_as_in_python(tmp_path: Path, statement: str) -> None:
    script = """
import atexit, os, signal, sys, threading
def inner():
    try:
        1 / 0
    except ZeroDivisionError as error:
        raise LookupError("outer") from error
sys.stdout.reconfigure(line_buffering=True)
"""
    write(tmp_path, script + statement + "\n")
    both(["script.py"], tmp_path)


def test_script_that_does_not_compile(tmp_path: Path) -> None:
    write(tmp_path, "print('a'\nx = = 1\n")
    assert both(["script.py"], tmp_path).returncode == 1


def test_ctrl_c(tmp_path: Path) -> None:
    write(tmp_path, "import time\nprint('ready', flush=True)\ntime.sleep(60)\n")
    endings = []
    for command in (["script.py"], [*RUN_QUIETLY, "script.py"]):
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        # The print may come a moment before the sleep, whose line the traceback names.
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
        endings.append((process.returncode, stderr))
    assert endings[0] == endings[1]
    # A shell reports this as 130.
    assert endings[0][0] == -signal.SIGINT


def test_the_child_of_a_fork_writes_no_report(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
        import os, sys
        child = os.fork()
        if child == 0:
            sys.exit(0)
        os.waitpid(child, 0)
        print(os.path.exists("report.json"))
        """,
    )
    result = cli("run", "--budget", "64MiB", "--report", "report.json", "script.py", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (0, "False\n")
    assert len(result.stderr.splitlines()) == 3  # the summary, once
    assert (tmp_path / "report.json").exists()


def test_spawned_workers_find_the_script(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
        import multiprocessing
        def double(x):
            return 2 * x
        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(double, [1, 2]))
        """,
    )
    assert both(["script.py"], tmp_path).stdout == "[2, 4]\n"


def test_a_scope_of_the_script_is_nested(tmp_path: Path) -> None:
    write(tmp_path, "import recoup\nwith recoup.budget('1MiB'): pass\n")
    result = cli("run", "--budget", "64MiB", "script.py", cwd=tmp_path)
    assert result.returncode == 1
    assert "cannot be nested" in result.stderr


def test_the_peak_stays_within_the_budget(tmp_path: Path) -> None:
    write(tmp_path, "import torch\ntorch.ones(2**20)\n")
    result = cli("run", "--budget", "1MiB", "script.py", cwd=tmp_path)
    assert result.returncode == OUT_OF_BUDGET
    assert "OutOfBudgetError" in result.stderr


def test_values_that_do_not_fit_at_the_end_are_no_error(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
        import torch
        base = torch.ones(2**18)
        kept = [base.mul(i) for i in range(12)]
        print(kept[3][0].item())
        """,
    )
    assert both(["script.py"], tmp_path).stdout == "3.0\n"
    result = cli("run", "--budget", "8MiB", "--quiet", "script.py", cwd=tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (0, "3.0\n", "")


# ---- other commands, and errors ----


def test_policies(capsys: pytest.CaptureFixture[str]) -> None:
    result = cli_here(capsys, "policies")
    assert (result.returncode, result.stderr) == (0, "")
    header, *rows = result.stdout.splitlines()
    assert header.split()[0] == "policy"
    policies = recoup.policies(simulated=True)
    assert [row.split()[0] for row in rows] == [policy.name for policy in policies]
    assert all(row.endswith(policy.summary) for row, policy in zip(rows, policies, strict=True))


def test_version() -> None:
    assert cli("--version").stdout == f"recoup {recoup.__version__}\n"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["run", "s.py"], "recoup run: error: the following arguments are required: --budget"),
        (["run", "--budget", "1MiB"], "recoup run: error: the following arguments are required"),
        (["run", "--budget", "1MiB", "--polcy", "lru", "s.py"], "recoup"),
        (
            ["run", "--budget", "1MiB", "absent.py"],
            "recoup run: error: can't open file ",
        ),
        (["walk"], "recoup: error: "),
        ([], "recoup: error: the following arguments are required: COMMAND"),
    ],
)
def test_errors_are_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    args: list[str],
    message: str,
) -> None:
    write(tmp_path, "print('ran')", "s.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    result = cli_here(capsys, *args)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(message)
    assert result.stderr.count("\n") == 1


def test_missing_module(tmp_path: Path) -> None:
    result = cli("run", "--budget", "1MiB", "--quiet", "-m", "no_such_module", cwd=tmp_path)
    assert result.returncode == 1
    assert result.stderr.endswith("No module named no_such_module\n")


@pytest.mark.parametrize(
    ("command", "name"),
    [("simulate", b"\xff.rtrace"), ("order", b"\xff.rtrace"), ("layout", b"\xff.csv")],
)
def test_file_names_that_are_not_text(
    command: str, name: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = os.path.join(os.fsencode(tmp_path), name)
    with open(path, "wb") as file:
        file.write(b"id,lower,upper,size\n1,0,2,3\n")
    assert "must be UTF-8" in refused(capsys, command, os.fsdecode(path))
