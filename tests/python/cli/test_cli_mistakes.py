"""Wrong arguments give one sentence that names the remedy, exit code 2, and do not load PyTorch."""

import argparse
import contextlib
import io
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import warm_python
from recoup.commands.cli import main, make_parser
from recoup.commands.exit_codes import USAGE_ERROR
from recoup.commands.parser import CommandParser

COMMANDS = make_parser()[1]
USAGE = "usage: recoup "
BUDGET = ("--budget", "1MiB")

# By command, what a user types, and words of the answer that name the remedy.
MISTAKES: dict[str, list[tuple[Sequence[str], str]]] = {
    "run": [
        (["script.py"], "--budget SIZE, such as 4GiB, 60% or auto"),
        (["script.py", "--budget", "2GiB"], "before: recoup run --budget SIZE script.py"),
        (["script.py", "--trace=run.rtrace"], "before: recoup run --trace FILE script.py"),
        (["2GiB", "script.py"], "write --budget 2GiB"),
        ([*BUDGET, "-c", "-m", "1"], "leave out one"),
        ([*BUDGET, "--time-plain", "-"], "must be a file or a module"),
        (["--budget", "least", "-"], "must be a file or a module"),
        (["--budget", "knee", "--device", "cuda:0", "script.py"], "for budgets of the CPU"),
        ([*BUDGET, "--max-slowdown", "-1", "script.py"], "above 0, or 0 for no bound"),
        (["--bugdet", "2GiB", "script.py"], "did you mean --budget?"),
        ([*BUDGET], USAGE),
        (["--budget"], "--budget SIZE"),
        (["--budget", "4GiBs", "script.py"], "B, KB, MB, GB, TB, KiB, MiB, GiB, TiB, k, m, g, t"),
        (["--budget", "160%", "script.py"], "above 0 and at most 100"),
        ([*BUDGET, "--share", "nodes", "script.py"], "must be 'node' or text such as 'group:name'"),
        ([*BUDGET, "--share", "node", "--adapt", "script.py"], "leave out one"),
        (["--budget", "60%", "--share", "node", "script.py"], "as a size such as 16GiB"),
        ([*BUDGET, "scirpt.py"], "did you mean script.py?"),
        ([*BUDGET, "--policy", "recuop", "script.py"], "did you mean recoup?"),
        ([*BUDGET, "--policy", "oracle", "script.py"], "which only simulations have"),
        ([*BUDGET, "--planning", "backgruond", "script.py"], "did you mean background?"),
        ([*BUDGET, "--option", "sede=1", "script.py"], "did you mean seed?"),
        ([*BUDGET, "--option", "seed=-1", "script.py"], "from 0 to 18446744073709551615"),
        (
            [*BUDGET, "--option", "check_replays=true", "script.py"],
            "check_replays has its own flag: use --check-replays",
        ),
        ([*BUDGET, "--option", "placement=ends", "script.py"], "one of best-fit, two-ended"),
        ([*BUDGET, "--quiet=yes", "script.py"], "write --quiet alone"),
        ([*BUDGET, "--quiet", "--progress", "script.py"], "--progress cannot be combined"),
        ([*BUDGET, "--spill", "lots", "script.py"], "such as '4GiB'"),
        ([*BUDGET, "--spill-dir", ".", "script.py"], "--spill SIZE"),
        ([*BUDGET, "--spill-only", "0", "script.py"], "--spill SIZE"),
        ([*BUDGET, "--keep", "", "script.py"], "must be the name of a module"),
        ([*BUDGET, "--report", "no/r.json", "script.py"], "there is no directory"),
        ([*BUDGET, "--report", "r", "--trace", "r", "script.py"], "use two files"),
        ([*BUDGET, "--lines", "script.py"], "--report FILE.json"),
        ([*BUDGET, "--suggestions", "s.json", "script.py"], "--report FILE.html"),
        ([*BUDGET, "--max-replay-ratio", "x", "script.py"], "above 0, or 0 for no bound"),
        ([*BUDGET, "--device", "cuda:x", "script.py"], "cpu or a GPU such as cuda:0"),
    ],
    "glossary": [
        (["evit"], "did you mean evict?"),
        (["replays"], "did you mean replay?"),
        (["spil"], "did you mean spill?"),
        (["budgets"], "did you mean budget?"),
        (["Pin"], "is not one of budget, charge, peak"),
        ([""], "is not one of budget, charge, peak"),
        (["leaf"], "is not one of budget, charge, peak"),
        (["evict", "spill"], "usage: recoup glossary [TERM]"),
        (["--term", "evict"], "`recoup glossary --help` lists all"),
        (["--hlep"], "did you mean --help?"),
    ],
    "suggest": [
        ([], "SCRIPT, or --trace FILE"),
        (["scirpt.py"], "did you mean script.py?"),
        (["--setps", "4", "script.py"], "did you mean --steps?"),
        (["--steps", "four", "script.py"], "a whole number"),
        (["--steps", "1", "script.py"], "2 or more"),
        (["--policy", "oracle", "script.py"], "which only simulations have"),
        (["--policy", "planed", "script.py"], "did you mean planned?"),
        (["--spill", "0", "script.py"], "such as '4GiB'"),
        (["--max-time-ratio", "1", "script.py"], "above 1"),
        (["--batch", "8", "script.py"], "needs --batch-size-for SIZE"),
        (["--batch-size-for", "4GiB", "script.py"], "needs --batch B"),
        (["--lengths", "127:512", "script.py"], "needs --batch B"),
        (["--lengths", "127", "script.py"], "such as 127:512"),
        (["--lengths", "512:127", "script.py"], "below the recorded one"),
        (["--lengths", "1:512", "script.py"], "a recorded length below 2"),
        (["--trace", "run.rtarce"], "did you mean run.rtrace?"),
        (["--trace", "run.rtrace", "script.py"], "leave out the program"),
        (["--json", "no/out.json", "script.py"], "there is no directory"),
    ],
    "verify": [
        ([], "required: PROGRAM; usage: recoup verify [options] PROGRAM -- OTHER or"),
        (["--", "script.py"], "required: PROGRAM; usage: "),
        (["script.py"], "add -- and the other program, or --against FILE"),
        (["script.py", "--"], "both sides are the same run"),
        (["script.py", "--", "scirpt.py"], "did you mean script.py?"),
        (["--record", "a", "script.py", "--", "A=1"], "leave out what follows --"),
        (["--record", "a", "--against", "run.rtrace", "script.py"], "not allowed with"),
        (["--against", "run.rtarce", "script.py"], "did you mean run.rtrace?"),
        (["--steps", "0", "script.py", "--", "A=1"], "1 or more"),
        (["script.py", "--", "--bugdet", "2GiB"], "did you mean --budget?"),
        (["script.py", "--", "--spill-dir", "."], "add --spill SIZE"),
        (["--budget", "4GiBs", "script.py", "--", "A=1"], "B, KB, MB, GB, TB, KiB, MiB"),
    ],
    "compare": [
        ([], USAGE),
        (["run.rtrace"], "required: B; usage: recoup compare A.json B.json"),
        (["run.rtarce", "dtr.log"], "did you mean run.rtrace?"),
        (["run.rtrace", "drt.log"], "did you mean dtr.log?"),
        (["run.rtrace", "dtr.log", "b.csv"], USAGE),
        (["run.rtrace", "dtr.log", "--moduls", "3"], "did you mean --modules?"),
        (["--modules", "-1", "run.rtrace", "dtr.log"], "0 or more"),
        (["--modules", "all", "run.rtrace", "dtr.log"], "a whole number"),
        (["run.rtrace", "dtr.log", "--modules"], "--modules N"),
        (["--json", "run.rtrace", "dtr.log"], "unknown option --json"),
    ],
    "simulate": [
        ([], USAGE),
        (["run.rtarce"], "did you mean run.rtrace?"),
        (["run.rtrace", "--polcy", "lru"], "did you mean --policy?"),
        (["run.rtrace", "--policy", "lur"], "did you mean lru?"),
        (["run.rtrace", "--policy", "lru", "all"], "is not one of planned"),
        (["run.rtrace", "--budgets", "100..0"], "must end at 1 % or more"),
        (["run.rtrace", "--budgets", "80,half"], "such as '4GiB'"),
        (["run.rtrace", "--oracle", "1", "2"], "--oracle COST SIZE DISTANCE ANCESTORS"),
        (["run.rtrace", "--noise", "3"], "SEED:PERCENT, such as 1:30"),
        (["run.rtrace", "--spill-request-ns", "3"], "--spill SIZE"),
        (["run.rtrace", "--preset", "dtr"], "needs a log of the DTR authors (.log, .log.gz)"),
        (["dtr.log", "--preset", "dtr", "--option", "seed=1"], "does not support --option"),
        (["run.rtrace", "--cost-model", "bytes"], "write --option cost_model=VALUE"),
        (["run.rtrace", "--option", "max_slowdown=3"], "has no effect in recoup simulate"),
        (["run.rtrace", "--option", "budget=1GiB"], "did you mean --budgets?"),
        (["run.rtrace", "--jobs", "0"], "1 or more"),
        (["run.rtrace", "--timeline", "t.json"], "one policy, one budget"),
        (["run.rtrace", "--optimum", "--option", "cost_model=bytes"], "leave out --option"),
        (["run.rtrace", "dtr.log"], USAGE),
    ],
    "layout": [
        ([], USAGE),
        (["run.rtarce"], "did you mean run.rtrace?"),
        (["run.rtrace", "--planer", "ge"], "did you mean --planner?"),
        (["run.rtrace", "--planner", "serch"], "did you mean search?"),
        (["run.rtrace", "--capacity", "4 bananas"], "such as '4GiB'"),
        (["run.rtrace", "--alignment", "48"], "a power of two"),
        (["run.rtrace", "--time-limit", "-1"], "a number of seconds, 0 or more"),
        (["run.rtrace", "--json", "no/x"], "there is no directory"),
        (["run.rtrace", "--plot", "x.svg"], "must end in .png"),
        (["run.rtrace", "--planner", "all", "--json", "x"], "needs one planner"),
        (
            ["run.rtrace", "--planner", "bound", "--dump"],
            "need addresses, but the planner bound computes none",
        ),
        (["run.rtrace", "--no-in-place", "--disable-inplace-ops", "relu"], "cannot be combined"),
        (["b.csv", "--disable-inplace-ops", "relu"], "needs a trace"),
    ],
    "order": [
        ([], USAGE),
        (["run.rtarce"], "did you mean run.rtrace?"),
        (["."], "directory"),
        (["run.rtrace", "dtr.log"], USAGE),
        (["run.rtrace", "--ordre", "dfs"], "did you mean --order?"),
        (["run.rtrace", "--order"], "--order NAME"),
        (["run.rtrace", "--order", "reverse-dsf"], "did you mean reverse-dfs?"),
        (["run.rtrace", "--long-life", "dynamc"], "did you mean dynamic?"),
        (["run.rtrace", "--json", "no/x"], "there is no directory"),
        (["run.rtrace", "--write", "."], "is a directory"),
    ],
    "bench": [
        (["all"], USAGE),
        (["--size", "rael"], "did you mean real?"),
        (["--nets", "gtp2"], "did you mean gpt2?"),
        (["--size", "real", "--nets", "gpt3"], "did you mean gpt2?"),
        (["--policies", "dtr", "oracle"], "which only simulations have"),
        (["--budgets", "half"], "FROM..TO:STEP or as a list"),
        (["--alternatives", "checkpoint-blok"], "did you mean checkpoint-block?"),
        (["--alternatives", "all", "selective"], "cannot be combined with other alternatives"),
        (["--steps", "0"], "1 or more"),
        (["--rounds", "many"], "a whole number"),
        (["--plot", "picture.gif"], "must end in .png or .svg or .pdf"),
        (["--plot-of", "tmie"], "did you mean time?"),
        (["--out", "no/out.json"], "there is no directory"),
        (["--page", "page.md"], "needs --size real"),
        (["--size", "real", "--device", "cpu"], "needs --size small"),
    ],
    "doctor": [
        (["now"], USAGE),
        (["now", "then"], USAGE),
        (["script.py"], USAGE),
        (["--jsn"], "did you mean --json?"),
        (["--JSON"], "`recoup doctor --help` lists all"),
        (["--json=yes"], "write --json alone"),
        (["--spill-dir"], "--spill-dir DIR"),
        (["--spill-dir", ""], "must be the path of a directory"),
        (["--spil-dir", "."], "did you mean --spill-dir?"),
        (["--verbose"], "`recoup doctor --help` lists all"),
    ],
    "policies": [
        (["lru"], USAGE),
        (["all"], USAGE),
        (["lru", "dtr"], USAGE),
        (["script.py"], USAGE),
        (["--all"], "`recoup policies --help` lists all"),
        (["--json"], "`recoup policies --help` lists all"),
        (["--policy", "lru"], "`recoup policies --help` lists all"),
        (["--hepl"], "did you mean --help?"),
        (["--help=lru"], "write -h/--help alone"),
        (["-v"], "`recoup policies --help` lists all"),
    ],
}
# Mistakes without a command.
OTHERS: list[tuple[Sequence[str], str]] = [
    ([], USAGE),
    (["rum", "script.py"], "did you mean run?"),
    (["script.py"], "recoup run --budget SIZE script.py"),
    (["train"], "the commands are run, compare, policies"),
    (["--budget", "2GiB", "run", "script.py"], "put it after `run`"),
    (["--vesrion"], "did you mean --version?"),
]

# A script with the name of the command line's script.
RUN_ALL = """
import contextlib, io, json, sys
sys.modules["torch"] = None  # importing it fails
from recoup.commands.cli import main
answers = []
for words in json.load(sys.stdin):
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            code = main(words)
        except SystemExit as ending:
            code = ending.code
    answers.append((code, said.getvalue()))
print(json.dumps(answers))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("script.py", "run.rtrace", "dtr.log", "b.csv"):
        (tmp_path / name).touch()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "recoup").write_text(RUN_ALL, encoding="utf-8")
    return tmp_path


def test_ten_mistakes_of_each_command() -> None:
    assert set(MISTAKES) == set(COMMANDS)
    for command, mistakes in MISTAKES.items():
        assert len({tuple(words) for words, _ in mistakes}) >= 10, command


@pytest.mark.parametrize("command", [*MISTAKES, ""])
def test_each_mistake_is_answered_by_a_sentence_that_names_the_remedy(
    folder: Path, command: str
) -> None:
    mistakes = MISTAKES[command] if command else OTHERS
    calls = [[*([command] if command else []), *words] for words, _ in mistakes]
    done = subprocess.run(
        [sys.executable, folder / "bin" / "recoup"],
        input=json.dumps(calls),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for call, (code, said), (_, remedy) in zip(
        calls, json.loads(done.stdout), mistakes, strict=True
    ):
        assert code == USAGE_ERROR, (call, said)
        assert said.startswith(" ".join(["recoup", *call[: bool(command)]]) + ": error: "), said
        assert said.count("\n") == 1 and said.endswith("\n"), said
        assert remedy in said, (call, said)


# ---- each option ----

# Options that accept any text here, because a mistake is found later or is none.
ANY_TEXT = {
    **{
        f"{command} {option}": "a name that no module has gives a warning at the end"
        for command in ("run", "suggest", "verify")
        for option in ("--keep", "--spill-only")
    },
    "run --suggestions": "read when it is known that there is a page",
    "run --spill-dir": "recoup asks the system when it opens a file there",
    "verify --spill-dir": "recoup asks the system when it opens a file there",
    "simulate --policy": "checked together with --preset",
    "layout --disable-inplace-ops": "the trace says which ops there are",
    "bench --nets": "checked together with --size",
    "bench --spill-dir": "recoup asks the system when it opens a file there",
    "doctor --spill-dir": "a directory that is not there is a finding",
}
NONSENSE = "no/such/thing"


def options() -> list[tuple[str, argparse.Action]]:
    return [
        (command, action)
        for command, parser in COMMANDS.items()
        for action in parser._actions
        if action.option_strings and "--help" not in action.option_strings
    ]


def said_about(parser: CommandParser, words: Sequence[str]) -> str:
    said = io.StringIO()
    with contextlib.redirect_stderr(said), pytest.raises(SystemExit) as ending:
        parser.parse_args(words)
    assert ending.value.code == USAGE_ERROR
    assert said.getvalue().count("\n") == 1
    return said.getvalue()


def files(parser: CommandParser) -> list[str]:
    """A value for each positional file of the command."""
    return [__file__ for each in parser._actions if not each.option_strings and each.type]


@pytest.mark.parametrize(
    ("command", "action"), options(), ids=lambda value: getattr(value, "dest", value)
)
def test_each_option_names_its_values(command: str, action: argparse.Action) -> None:
    parser, before = COMMANDS[command], files(COMMANDS[command])
    name = action.option_strings[-1]
    if len(name) > 3:
        wrong = name[:3] + name[2:]  # doubles a letter
        assert f"did you mean {name}?" in said_about(parser, [*before, wrong, "script.py"])
    if action.nargs == 0:
        assert (
            f"{name} takes no value" in said_about(parser, [*before, f"{name}=3"]) or name == "-m"
        )
        return
    assert f"error: {name} needs a value: {name} " in said_about(parser, [*before, name])
    assert action.choices is None, "argument_types.choice says which one was meant"
    if f"{command} {name}" not in ANY_TEXT:
        values = [NONSENSE] * (action.nargs if isinstance(action.nargs, int) else 1)
        answer = said_about(parser, [*before, name, *values, "script.py"])
        assert f"error: {name}" in answer and "no/such" in answer


def test_any_text_lists_existing_options() -> None:
    assert ANY_TEXT.keys() <= {f"{command} {o.option_strings[-1]}" for command, o in options()}


# ---- PyTorch is not loaded ----


def test_help_lists_every_command() -> None:
    listed = re.findall(r"^    ([a-z]+)  ", make_parser()[0].format_help(), re.M)
    assert sorted(listed) == sorted(COMMANDS)
    assert listed[-2:] == ["layout", "order"]


@pytest.mark.parametrize(
    "words",
    [["--help"], ["--version"], ["policies"], *([command, "--help"] for command in COMMANDS)],
    ids=" ".join,
)
def test_help_and_version_load_no_pytorch(words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "recoup", *words],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "recoup.commands.cli" in loaded
    assert not loaded & {"torch", "numpy", "recoup._C", "recoup.native", "matplotlib"}
    assert done.stdout


def test_the_installed_script_loads_no_pytorch() -> None:
    script = Path(warm_python.REAL).with_name("recoup")
    assert script.is_file(), "pip install has not made it"
    done = subprocess.run(
        [sys.executable, "-X", "importtime", script, "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "recoup.commands.cli" in done.stderr
    assert "torch" not in done.stderr


def test_main_without_arguments_reads_sys_argv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["recoup", "--version"])
    with pytest.raises(SystemExit) as ending:
        main()
    assert ending.value.code == 0
