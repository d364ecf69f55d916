"""Exit codes of the command line, and hints about misplaced options."""

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import warm_python
from command import cli
from recoup.commands import exit_codes
from recoup.commands.exit_codes import NOT_WRITTEN, OUT_OF_BUDGET
from recoup.commands.misplaced import refused_option

PAGE = Path(__file__).parents[3] / "docs" / "commands.md"


def run(
    folder: Path,
    script: str,
    *args: str,
    after: tuple[str, ...] = (),
    python: str | None = None,
) -> "Result":
    (folder / "script.py").write_text(textwrap.dedent(script), encoding="utf-8")
    command = ("run", "--budget", "1MiB", *args, "script.py", *after)
    return cli(*command, cwd=folder, python=python)


Result = subprocess.CompletedProcess[str]


def test_the_page_lists_all_codes() -> None:
    rows = re.findall(r"^\| ([\d, ]+) \|", PAGE.read_text(encoding="utf-8"), re.M)
    listed = [int(code) for row in rows for code in row.split(",")]
    codes = {value for name, value in vars(exit_codes).items() if name.isupper()}
    assert len(listed) == len(set(listed))
    assert codes | {0} <= set(listed)


# ---- out of budget ----

HOOK = "sys.excepthook = lambda kind, error, traceback: print('hook', kind.__name__)\n"


@pytest.mark.parametrize("first", ["", HOOK], ids=["", "hook"])
def test_out_of_budget_has_its_own_code_and_ends_as_in_python(tmp_path: Path, first: str) -> None:
    script = (
        "import atexit, sys, recoup\n"
        "atexit.register(print, 'bye')\n"
        f"{first}"
        "def work(): raise recoup.OutOfBudgetError('no room')\n"
        "work()\n"
    )
    ours = run(tmp_path, script, "--quiet")
    command = [sys.executable, "script.py"]
    plain = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ours.stdout, ours.stderr) == (plain.stdout, plain.stderr)
    assert (plain.returncode, ours.returncode) == (1, OUT_OF_BUDGET)
    assert ours.stdout.endswith("bye\n")


def test_the_code_of_a_program_that_handles_the_error_is_kept(tmp_path: Path) -> None:
    script = """
        import sys, torch
        try:
            torch.ones(2**20)
        except torch.OutOfMemoryError:
            sys.exit(3)
    """
    result = run(tmp_path, script, "--quiet")
    assert (result.returncode, result.stderr) == (3, "")


# ---- files ----

# Creates a directory with the name of the output file at the end of the program.
SPOIL = "import atexit, os, sys\natexit.register(print, 'bye')\nos.mkdir('out')\n"


@pytest.mark.parametrize("option", ["--report", "--trace", "--timeline"])
def test_an_output_file_that_cannot_be_written_has_its_own_code(
    tmp_path: Path, option: str
) -> None:
    result = run(tmp_path, SPOIL + "sys.exit(0)\n", option, "out", "--quiet")
    assert result.returncode == NOT_WRITTEN, result.stderr
    assert result.stdout == "bye\n"
    assert f"cannot write the {option[2:]}: " in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("end", "code"), [("sys.exit(5)", 5), ("1 / 0", 1), ("os._exit(0)", 0), ("pass", NOT_WRITTEN)]
)
def test_the_code_of_a_failed_program_takes_precedence(tmp_path: Path, end: str, code: int) -> None:
    assert run(tmp_path, SPOIL + end, "--report", "out", "--quiet").returncode == code


def test_exit_handlers_of_libraries_run_if_a_file_cannot_be_written(tmp_path: Path) -> None:
    script = (
        SPOIL
        + "import logging, logging.handlers\n"
        + textwrap.dedent("""
        to = logging.FileHandler("log.txt", delay=True)
        logging.getLogger().addHandler(logging.handlers.MemoryHandler(99, target=to))
        logging.getLogger().warning("kept")
    """)
    )
    # A new Python, in which recoup's handler is registered before that of `logging`.
    result = run(tmp_path, script, "--report", "out", python=warm_python.REAL)
    assert result.returncode == NOT_WRITTEN
    assert (tmp_path / "log.txt").read_text() == "kept\n"


def test_the_code_of_a_forked_child_is_kept(tmp_path: Path) -> None:
    script = SPOIL + textwrap.dedent("""
        child = os.fork()
        if child == 0:
            sys.exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """)
    result = run(tmp_path, script, "--report", "out", "--quiet")
    assert result.returncode == NOT_WRITTEN
    assert "0\n" in result.stdout


# ---- options after the script ----

PARSER = """
    import argparse
    parser = argparse.ArgumentParser()
    parser.add_argument("--trace")
    parser.add_argument("--seed", type=int)
    print(parser.parse_args().trace)
"""


def test_options_of_the_script_with_our_names_are_its_own(tmp_path: Path) -> None:
    result = run(tmp_path, PARSER, "--quiet", after=("--trace", "mine"))
    assert (result.returncode, result.stdout, result.stderr) == (0, "mine\n", "")
    other = run(tmp_path, PARSER, after=("--trace", "mine", "--seed", "x"))
    assert other.returncode == 2
    assert "before script.py" not in other.stderr


def test_an_unknown_option_of_the_script_gives_a_hint(tmp_path: Path) -> None:
    result = run(tmp_path, PARSER, after=("--trace", "mine", "--report", "r.html"))
    assert result.returncode == 2
    assert "unrecognized arguments: --report r.html\nrecoup: --report comes after" in result.stderr
    assert "put it before script.py\n" in result.stderr
    assert not (tmp_path / "r.html").exists()
    quiet = run(tmp_path, PARSER, "--quiet", after=("--report", "r.html"))
    assert quiet.stderr.endswith("unrecognized arguments: --report r.html\n")


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (ValueError("Some specified arguments are not used by the parser: ['--report']"), True),
        (ValueError("No such option: --report"), True),
        (ValueError("No such option: --report-all"), False),
        (ValueError("--report has no value"), False),
        (SystemExit(2), False),
    ],
)
def test_errors_about_unknown_options_are_recognized(error: BaseException, found: bool) -> None:
    assert refused_option(error, ["--trace", "--report"]) == ("--report" if found else None)
    outer = SystemExit(2)
    outer.__context__ = error
    assert refused_option(outer, ["--report"]) == ("--report" if found else None)


# ---- tiny budgets ----


def test_a_budget_without_a_unit_gives_a_warning_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("print('ran')")
    result = cli("run", "--budget", "4", "script.py", cwd=tmp_path)
    assert result.stdout == "ran\n"
    first, *rest = result.stderr.splitlines()
    assert first == "recoup run: warning: a budget of 4 bytes; did you mean 4GiB?"
    assert not any("Warning" in line for line in rest)
    quiet = cli("run", "--budget", "4", "--quiet", "script.py", cwd=tmp_path)
    assert (quiet.returncode, quiet.stderr) == (0, "")
    result = cli(
        *("run", "--budget", "4MiB", "--spill", "10", "--report", "r.htlm", "script.py"),
        cwd=tmp_path,
    )
    assert result.stderr.splitlines()[:2] == [
        "recoup run: warning: a spill of 10 bytes; did you mean 10GiB?",
        "recoup run: warning: r.htlm will be JSON; a page needs a name that ends in .html",
    ]
