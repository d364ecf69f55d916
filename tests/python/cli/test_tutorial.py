"""docs/tutorial.md: every command of the page runs, and prints what the page shows."""

import itertools
import re
import shlex
from pathlib import Path

from command import cli

_ROOT = Path(__file__).resolve().parents[3]
_PAGE = (_ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
_FIGURE = re.compile(r"\d[\d,.]*\s?(?:(?:ns|us|ms|s|B|KiB|MiB|GiB|x)\b|%)?")


def shape(line: str) -> str:
    """A line without its figures, paths and widths of columns."""
    line = re.sub(r"/\S+/run\.html", "run.html", line)
    return " ".join(_FIGURE.sub("#", line).split())


def missing(shown: str, printed: str) -> list[str]:
    """The lines of a block that are not printed, or not in this order. The line ... is any text."""
    rest = iter([shape(line) for line in printed.splitlines()])
    lines = [shape(line) for line in shown.splitlines() if line != "..."]
    return [line for line in lines if not any(each.startswith(line) for each in rest)]


def test_the_comparison_finds_differences() -> None:
    assert missing("a 1.5 MiB b\n...\nc 2", "a 200 KiB b\nx\nc 3 more") == []
    assert missing("c 2\na 1.5 MiB b", "a 200 KiB b\nc 3") == ["a # b"]
    assert missing("ratio 2x", "share 2x") == ["ratio #"]


def test_the_commands_of_the_page(tmp_path: Path) -> None:
    blocks = _BLOCK.findall(_PAGE)
    (program,) = [text for kind, text in blocks if kind == "python" and "torch.manual_seed" in text]
    (tmp_path / "train.py").write_text(program, encoding="utf-8")
    commands = 0
    for (kind, text), (after, shown) in itertools.pairwise(blocks):
        if kind != "bash":
            continue
        assert after == "text", text
        words = shlex.split(text)
        assert words[0] == "recoup"
        result = cli(*words[1:], cwd=tmp_path)
        commands += 1
        fails = "OutOfBudgetError" in shown
        assert result.returncode == (80 if fails else 0), result.stderr
        printed = result.stdout + result.stderr
        assert missing(shown, printed) == [], printed
    assert commands == 5
    assert (tmp_path / "run.html").exists()
