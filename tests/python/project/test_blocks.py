"""README.md, docs/ and the pages next to README: every fenced block and command is run, checked, or
listed as neither.

Blocks of Python run, those of a page one after the other in one folder and one namespace. Commands
are checked without being run: the command line's parser accepts them, and the targets of make, the
scripts and the tests that they name exist. Blocks that another test runs, and blocks that are
neither run nor checked, are in the tables below, with the test or the reason.
"""

import functools
import itertools
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

import recipes
from recoup.commands.cli import main, make_parser

ROOT = Path(__file__).parents[3]
PAGES = [
    path.relative_to(ROOT).as_posix()
    for path in (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))
]

FENCED = re.compile(r"^( *)```([^\n`]*)\n(.*?)^\1```$", re.M | re.S)
SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")


class Block(NamedTuple):
    page: str
    number: int
    """Within the page, from 1."""
    language: str
    """The first word after the fence; "text" if there is none."""
    text: str

    @property
    def key(self) -> tuple[str, int]:
        return self.page, self.number


@functools.cache
def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks_of(page: str) -> list[Block]:
    return [
        Block(page, number, (info.split() or ["text"])[0], text)
        for number, (_, info, text) in enumerate(FENCED.findall(text_of(page)), 1)
    ]


BLOCKS = [block for page in PAGES for block in blocks_of(page)]

# ---- the tables ----

RUN_BY = {
    "docs/maintainers/add-a-policy.md": "tests/python/project/test_add_a_policy.py",
    "docs/recipes.md": "tests/python/support/recipes.py",
    "docs/tutorial.md": "tests/python/cli/test_tutorial.py",
}
"""Pages of which another test runs every block. The test names the page."""

RUN_BY_PARTLY = {
    ("docs/reference.md", 4): "tests/python/project/test_cpp_package.py",
    ("docs/reference.md", 5): "tests/python/project/test_cpp_package.py",
    ("docs/verify.md", 2): "tests/python/verify/test_verify.py",
}
"""The same for single blocks."""

NOT_RUN = {
    ("docs/batch-size.md", 2): "an output whose times belong to one machine",
    (
        "docs/commands.md",
        5,
    ): "a summary with names for its numbers; `make messages` writes real ones",
    ("docs/commands.md", 9): "a test suite; tests/python/project/test_pytest_plugin.py runs others",
    ("docs/cuda.md", 1): "needs a GPU; tests/python/gpu runs the same calls",
    ("docs/frameworks.md", 1): "compiling takes long; the recipe `Compiled blocks` runs the same",
    ("docs/maintainers/cuda-design.md", 1): "a drawing",
    ("docs/maintainers/cuda-design.md", 2): "a drawing",
    ("docs/maintainers/life-of-an-op.md", 1): "a drawing",
    ("docs/processes.md", 3): "an example; tests/python/scopes/test_shared_live.py has such one",
    ("docs/suggest.md", 2): "an output whose times belong to one machine",
    ("docs/suggest.md", 3): "an output whose times belong to one machine",
    ("docs/maintainers/trace-format.md", 1): "bytes of a file; tests/core/trace tests the format",
}
"""Blocks that are neither run nor checked, with the reason."""

NOT_CHECKED = {
    "[": "a builtin of the shell",
    "apt": "installs packages of the system",
    "pytest": "tests/python/project/test_pytest_plugin.py uses the plugin's options",
    "rm": "removes a file that is not in the repository",
}
"""Programs in blocks of commands of which nothing is checked, with the reason."""

TRAINING = "def train(*_): return [train_step(batch) for batch in loader]\n"
BEFORE = {
    "README.md": (
        "layers = model\ndef model(batch): return (layers(batch) - batch).square().mean()\n"
    ),
    "docs/maintainers/debug-a-replay.md": (  # evicts all values after each op
        "model, loader = model[:2], loader[:1]\noptimizer = torch.optim.AdamW(model.parameters())\n"
    ),
    "docs/research/optimum.md": (
        "model = torch.nn.Linear(128, 128)\n"
        "optimizer = torch.optim.SGD(model.parameters())\n"
        "with recoup.trace('run.rtrace'): train_step(loader[0])\n"
        "trace = recoup.Trace.read('run.rtrace')\n"
        "budget_bytes = trace.step().unbudgeted_peak_bytes()\n"
    ),
    "docs/reference.md": "import warnings\n",
}
"""What runs before the blocks of a page, after the program of docs/recipes.md and `train`."""

SAID = {
    "recoup run: error: unknown option --bugdet; did you mean --budget?": "run --bugdet 2GiB a.py",
    "recoup run: error: --budget needs a value: --budget SIZE": "run --budget",
}
"""Lines of docs/commands.md, and the arguments that the command line answers so."""

LABELS = {"recoup in N %", "recoup in 100 %"}
"""Names of rows in the tables of docs/research/bench-real.md, which look like commands."""

# ---- the tests ----


def is_elsewhere(block: Block) -> bool:
    return block.page in RUN_BY or block.key in RUN_BY_PARTLY or block.key in NOT_RUN


def test_each_block_is_run_checked_or_listed() -> None:
    checked = {"python", "bash", "sh"}
    unknown = [
        block.key
        for block in BLOCKS
        if not is_elsewhere(block) and block.language not in checked and not said_lines(block)
    ]
    assert unknown == []


def test_each_entry_of_the_tables_is_needed() -> None:
    keys = {block.key for block in BLOCKS}
    assert keys >= {*RUN_BY_PARTLY, *NOT_RUN}
    assert RUN_BY_PARTLY.keys().isdisjoint(NOT_RUN)
    with_blocks = {block.page for block in BLOCKS}
    assert with_blocks >= {*RUN_BY, *BEFORE}
    programs = {program_of(words) for block in shell_blocks() for words in commands_in(block.text)}
    assert programs >= NOT_CHECKED.keys()
    assert all(reason for reason in (*NOT_RUN.values(), *NOT_CHECKED.values()))


@pytest.mark.parametrize(
    ("page", "test"),
    [*RUN_BY.items(), *((page, test) for (page, _), test in RUN_BY_PARTLY.items())],
)
def test_the_other_test_names_the_page(page: str, test: str) -> None:
    assert Path(page).name in (ROOT / test).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "page",
    dict.fromkeys(
        block.page for block in BLOCKS if block.language == "python" and not is_elsewhere(block)
    ),
)
def test_python_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    sources = [block.text for block in blocks_of(page) if block.language == "python"]
    recipes.run(recipes.CELL.join([TRAINING + BEFORE.get(page, ""), *sources]))


@pytest.mark.parametrize("line", SAID)
def test_the_command_line_says_what_the_page_says(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(SAID[line].split())
    # From the name of the option on: `make messages` writes the exact words of all errors.
    option = line[line.index("--") :]
    assert any(said.endswith(option) for said in capsys.readouterr().err.splitlines())


def said_lines(block: Block) -> bool:
    return block.page == "docs/commands.md" and set(block.text.splitlines()) <= SAID.keys()


# ---- commands ----


def shell_blocks() -> list[Block]:
    return [each for each in BLOCKS if each.language in ("bash", "sh") and not is_elsewhere(each)]


def commands_in(script: str) -> Iterator[list[str]]:
    """The words of each command, without comments and variables in front."""
    for line in script.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if re.fullmatch(r"[;&|]+|[{}]", word):
                if words:
                    yield words
                words = []
            elif words or not re.match(r"[A-Z_]+=", word):
                words.append(word)


def program_of(words: list[str]) -> str:
    return words[0].rpartition("/")[2] if words[0].startswith(".venv/bin/") else words[0]


@pytest.mark.parametrize("block", shell_blocks(), ids=lambda block: f"{block.page}-{block.number}")
def test_commands_exist(
    block: Block,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for words in commands_in(block.text):
        try:
            wrong = what_is_wrong(words)
        except SystemExit:
            wrong = capsys.readouterr().err
        assert not wrong, f"{block.page}, block {block.number}: {shlex.join(words)}: {wrong}"


def test_wrong_commands_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for script, expected in (
        ("recoup run --bugdet 2GiB a.py", None),
        ("X=1 recoup run --budget 2GiB a.py || { recoup run --policy no a.py; }", None),
        ("make bulid", "there is no target bulid"),
        ("python bench/no.py", "there is no bench/no.py"),
        ("python bench/growth.py chain --no-such", "bench/growth.py has no --no-such"),
        ("python -m pytest tests/python/*/test_{hook,no_such}.py", "no test tests/python/*/test_n"),
        ("tools/run.sh", "there is no tools/run.sh"),
        ("cmake --preset no", "there is no preset no"),
        ("pip install 'recoup[no]'", "there is no recoup[no]"),
        ("frobnicate", "no check for frobnicate"),
    ):
        found = ""
        for words in commands_in(script):
            try:
                found += what_is_wrong(words)
            except SystemExit as stop:
                assert stop.code == 2 and expected is None
                found += capsys.readouterr().err
        assert (expected or "recoup run: error: ") in found, script


def what_is_wrong(words: list[str]) -> str:
    """What is wrong with a command; empty if nothing is. Raises SystemExit as the parser does."""
    program = program_of(words)
    if program in NOT_CHECKED:
        return ""
    if program.startswith("tools/"):
        return wrong_script(words)
    check = CHECKS.get(program)
    return check(words[1:]) if check else f"there is no check for {program}"


def wrong_torchrun(words: list[str]) -> str:
    after = words.index("-m") + 1
    return wrong_recoup(words[after + 1 :]) if words[after] == "recoup" else "it runs no recoup"


def wrong_recoup(words: list[str]) -> str:
    for word in words:
        if re.fullmatch(r"[\w./-]+\.(py|rtrace|csv|gz|digests)", word):
            Path(word).parent.mkdir(parents=True, exist_ok=True)
            Path(word).touch()
    make_parser()[0].parse_args(words)
    return ""


def wrong_make(words: list[str]) -> str:
    names = [word for word in words if "=" not in word]
    return "".join(f"there is no target {name}" for name in names if name not in targets())


@functools.cache
def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M))


def wrong_python(words: list[str]) -> str:
    if words[0] == "-c":
        compile(words[1], "a command", "exec")
        return ""
    if words[:2] == ["-m", "pytest"]:
        patterns = [each for word in words[2:] if "/" in word for each in without_braces(word)]
        lost = [pattern for pattern in patterns if not any(ROOT.glob(pattern))]
        return "".join(f"there is no test {pattern}" for pattern in lost)
    return wrong_script(words)


def without_braces(pattern: str) -> list[str]:
    """The patterns that a shell makes of a pattern with at most one pair of braces."""
    found = re.fullmatch(r"(.*)\{(.*)\}(.*)", pattern)
    if found is None:
        return [pattern]
    return [f"{found[1]}{choice}{found[3]}" for choice in found[2].split(",")]


def wrong_script(words: list[str]) -> str:
    """Options must stand in the source of the script, or of the folder with its name."""
    script = ROOT / words[0]
    if not script.exists():
        return f"there is no {words[0]}"
    folder = script if script.is_dir() else script.with_suffix("")
    files = [*([script] if script.is_file() else []), *folder.glob("*.py")]
    source = "\n".join(file.read_text(encoding="utf-8") for file in files)
    options = [word.partition("=")[0] for word in words[1:] if word.startswith("--")]
    lost = [option for option in options if not re.search(rf"{option}(?![\w-])", source)]
    return "".join(f"{words[0]} has no {option}" for option in lost)


def wrong_cmake(words: list[str]) -> str:
    presets = set(re.findall(r'"name": "(\w+)"', (ROOT / "CMakePresets.json").read_text("utf-8")))
    names = [name for word, name in itertools.pairwise(words) if word == "--preset"]
    return "".join(f"there is no preset {name}" for name in names if name not in presets)


def wrong_pip(words: list[str]) -> str:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extras = re.findall(r"^(\w+) = ", text.partition("optional-dependencies]")[2], re.M)
    known = {f"recoup[{extra}]" for extra in extras}
    names = [word for word in words if "[" in word]
    return "".join(f"there is no {name}" for name in names if name not in known)


CHECKS: dict[str, Callable[[list[str]], str]] = {
    "cmake": wrong_cmake,
    "make": wrong_make,
    "pip": wrong_pip,
    "python": wrong_python,
    "recoup": wrong_recoup,
    "torchrun": wrong_torchrun,
}

# ---- commands in the text ----


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_the_text_exist(page: str) -> None:
    """Of `recoup ...` the command and its options, of `make ...` the targets."""
    commands = make_parser()[1]
    text = FENCED.sub("", text_of(page))
    wrong = []
    for span in SPAN.findall(text):
        words = span.split()
        if len(words) < 2 or span in LABELS:
            continue
        if words[0] == "make":
            names = [word for word in words[1:] if re.fullmatch(r"[a-z-]+", word)]
            wrong += [span for name in names if name not in targets()]
        if words[0] == "recoup" and words[1] != "--version":
            if words[1] not in commands:
                wrong.append(span)
                continue
            known = commands[words[1]].option_names()
            own = re.split(r"\S+\.py\b", span)[0]  # the others are the program's
            options = re.findall(r"(?<![\w-])--[a-z-]+", own)
            wrong += [f"{span}: {option}" for option in options if option not in known]
    assert wrong == []
