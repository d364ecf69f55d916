"""Budgets of the environment and of pyproject.toml, for scopes and runs without their own."""

import subprocess
from pathlib import Path

import pytest

import recoup
from command import cli

SAYS = """
import torch
torch.ones(8).sum()
print("ran")
"""


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory without settings, and no variables."""
    for name in ("RECOUP_BUDGET", "RECOUP_SPILL"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "project" / "inner"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


def settings() -> tuple[int, int]:
    """The budget and the capacity of the spill tier of a scope without arguments."""
    with recoup.budget() as run:
        found = run.settings()
        return found["budget_bytes"], found["spill_bytes"]


def test_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOUP_BUDGET", "3MiB")
    assert settings() == (3 << 20, 0)
    monkeypatch.setenv("RECOUP_SPILL", "5MiB")
    assert settings() == (3 << 20, 5 << 20)


def test_pyproject_is_used(nowhere: Path) -> None:
    file = nowhere.parent / "pyproject.toml"
    file.write_text('[project]\nname = "x"\n[tool.recoup]\nbudget = "3MiB"\nspill = 5000000\n')
    assert settings() == (3 << 20, 5_000_000)
    (nowhere / "pyproject.toml").write_text('[tool.other]\nbudget = "7MiB"\n')
    assert settings() == (3 << 20, 5_000_000)
    (nowhere / "pyproject.toml").write_text('[tool.recoup]\nbudget = "1MiB"\n')
    assert settings() == (1 << 20, 0)


def test_the_precedence(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = '[tool.recoup]\nbudget = "1MiB"\nspill = "2MiB"\n'
    (nowhere / "pyproject.toml").write_text(text)
    monkeypatch.setenv("RECOUP_BUDGET", "3MiB")
    assert settings() == (3 << 20, 2 << 20)
    with recoup.budget(spill="9MiB") as run:
        assert run.settings()["spill_bytes"] == 9 << 20
    # A scope that states its budget takes nothing from outside.
    with recoup.budget("4MiB") as run:
        assert (run.settings()["budget_bytes"], run.settings()["spill_bytes"]) == (4 << 20, 0)


def test_an_empty_variable_is_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOUP_BUDGET", "")
    with pytest.raises(TypeError, match=r"recoup\.budget needs a budget such as '4GiB'"):
        recoup.budget()


@pytest.mark.parametrize("value", ["much", "0", "101%", "1 GiX", "-5"])
def test_errors_name_the_variable(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("RECOUP_BUDGET", value)
    with pytest.raises(ValueError, match=r"^RECOUP_BUDGET "):
        recoup.budget()
    monkeypatch.setenv("RECOUP_BUDGET", "1MiB")
    monkeypatch.setenv("RECOUP_SPILL", value)
    with pytest.raises(ValueError, match=r"^RECOUP_SPILL "):
        recoup.budget()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tool.recoup", "cannot be read"),
        ("tool = 3  # not a table with recoup", "cannot be read"),
        ("[tool]\nrecoup = 3", r"\[tool.recoup\] must be a table with budget, spill"),
        ("[tool.recoup]\nbugdet = '1GiB'", "may have budget, spill; got 'bugdet'"),
        ("[tool.recoup]\nbudget = true", r"\[tool.recoup\] budget must be a size; got bool"),
        ("[tool.recoup]\nbudget = 1.5", r"\[tool.recoup\] budget must be a size; got float"),
        ("[tool.recoup]\nbudget = 'much'", r"\[tool.recoup\] budget 'much' is not a size; "),
        ("\xff\n[tool.recoup]\nbudget = '1GiB'", "cannot be read"),
    ],
)
def test_errors_name_the_file(nowhere: Path, text: str, said: str) -> None:
    file = nowhere / "pyproject.toml"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=said) as caught:
        recoup.budget()
    assert str(caught.value).startswith("pyproject.toml")


def test_files_of_others_are_no_problem(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that say nothing of recoup, and those that this user may not read."""
    (nowhere.parent / "pyproject.toml").write_text('[tool.recoup]\nbudget = "3MiB"\n')
    (nowhere / "pyproject.toml").write_bytes(b"[tool\n\xff")
    assert settings() == (3 << 20, 0)
    read = Path.read_bytes

    def read_own(path: Path) -> bytes:
        if path == Path("pyproject.toml"):
            raise PermissionError(13, "Permission denied", str(path))
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", read_own)
    assert settings() == (3 << 20, 0)


def run_program(folder: Path, *options: object) -> subprocess.CompletedProcess[str]:
    (folder / "says.py").write_text(SAYS)
    return cli("run", *options, folder / "says.py", cwd=folder)


def test_recoup_run_uses_them(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOUP_BUDGET", "3MiB")
    result = run_program(nowhere)
    assert (result.returncode, result.stdout) == (0, "ran\n")
    assert "of a budget of 3.0 MiB (0.0 %, set by RECOUP_BUDGET)" in result.stderr
    result = run_program(nowhere, "--budget", "2MiB")
    assert "of a budget of 2.0 MiB (0.0 %, set by --budget)" in result.stderr
    (nowhere / "pyproject.toml").write_text('[tool.recoup]\nbudget = "4MiB"\n')
    monkeypatch.delenv("RECOUP_BUDGET")
    result = run_program(nowhere)
    assert "(0.0 %, set by pyproject.toml: [tool.recoup] budget)" in result.stderr
    (nowhere / "pyproject.toml").unlink()
    monkeypatch.setenv("RECOUP_BUDGET", "900TiB")
    assert "recoup run: error: RECOUP_BUDGET must be at most" in run_program(nowhere).stderr
    monkeypatch.setenv("RECOUP_BUDGET", "much")
    result = run_program(nowhere)
    assert result.returncode == 2
    assert result.stderr.startswith("recoup run: error: RECOUP_BUDGET 'much' is not a size; it")
    monkeypatch.delenv("RECOUP_BUDGET")
    (nowhere / "pyproject.toml").write_text('[tool.recoup]\nbudget = "much"\n')
    result = run_program(nowhere)
    assert result.returncode == 2
    assert "error: pyproject.toml: [tool.recoup] budget 'much' is not a size; it" in result.stderr
