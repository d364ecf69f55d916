"""Tasks of users, each done from the command line in at most three commands.

The commands are those in README and `--help`; the test reads their output as a person would.
"""

import contextlib
import inspect
import io
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import recoup
from command import cli
from recoup._memory.sizes import parse_bytes
from recoup.commands.cli import main

MOST_COMMANDS = 3
MIB = 1 << 20
PLENTY = "4GiB"

# The user's script, which does not import recoup.
TRAIN = """
import argparse, torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=768)
parser.add_argument("--steps", type=int, default=4)
parser.add_argument("--save")
parser.add_argument("--resume")
options = parser.parse_args()

def block(width, wide):
    return nn.Sequential(nn.Linear(width, wide), nn.GELU(), nn.Dropout(0.1), nn.Linear(wide, width))

torch.manual_seed(0)
model = nn.Sequential()
for number in range(10):
    model.add_module(f"block{number}", block(128, 128))
model.add_module("large", block(128, 384))
optimizer = torch.optim.AdamW(model.parameters())
first = 0
if options.resume:
    first, weights, state, random = torch.load(options.resume)
    model.load_state_dict(weights)
    optimizer.load_state_dict(state)
    torch.set_rng_state(random)
for step in range(first, options.steps):
    batch = torch.randn(options.batch, 128)
    loss = (model(batch) - batch).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}: loss {loss.item()!r}")
if options.save:
    saved = [options.steps, model.state_dict(), optimizer.state_dict(), torch.get_rng_state()]
    torch.save(saved, options.save)
"""


class Terminal:
    """A folder with the user's script, in which commands run; counts the commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.commands: list[str] = []
        (folder / "train.py").write_text(TRAIN, encoding="utf-8")

    def type(self, command: str, *, fails: bool | None = False) -> subprocess.CompletedProcess[str]:
        """Runs a command that begins with `recoup`. fails: whether it does; None: it may."""
        self.commands.append(command)
        name, *words = shlex.split(command)
        assert name == "recoup"
        result = cli(*words, cwd=self.folder)
        assert fails in (None, result.returncode != 0), result.stderr[-3000:]
        return result

    def losses(self, *args: str) -> list[str]:
        """The output of the script without recoup."""
        result = subprocess.run(
            [sys.executable, "train.py", *args],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=True,
        )
        return result.stdout.splitlines()

    def report(self, name: str = "run.json") -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / name).read_text(encoding="utf-8"))
        return found

    def figure(self, field: str) -> int:
        """A figure of `--report run.json`, from any group."""
        stats = self.report()["stats"]
        groups = [group for group in stats.values() if isinstance(group, dict)]
        [value] = [group[field] for group in (stats, *groups) if field in group]
        return int(value)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    shown = Terminal(tmp_path)
    yield shown
    assert 1 <= len(shown.commands) <= MOST_COMMANDS, shown.commands


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The output of the script without recoup."""
    lines = Terminal(tmp_path_factory.mktemp("plain")).losses()
    assert len(lines) == 4
    return lines


def has_command(name: str) -> bool:
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
        main(["--help"])
    return re.search(rf"^ +{name} ", shown.getvalue(), re.M) is not None


def takes_auto() -> bool:
    try:
        recoup.budget("auto")
    except ValueError:
        return False
    return True


needs_suggest = pytest.mark.skipif(not has_command("suggest"), reason="no `recoup suggest`")
needs_doctor = pytest.mark.skipif(not has_command("doctor"), reason="no `recoup doctor`")
needs_auto = pytest.mark.skipif(not takes_auto(), reason="no `--budget auto`")
needs_modules = pytest.mark.skipif(
    "profile" not in inspect.signature(recoup.budget).parameters, reason="reports name no modules"
)


def peak_in(output: str) -> int:
    """The peak in the output of `recoup simulate`."""
    found = re.search(r"unbudgeted peak ([\d,]+) bytes", output)
    assert found is not None, output
    return int(found[1].replace(",", ""))


def table_in(output: str) -> list[list[str]]:
    """The cells of a table, starting with its header."""
    cells = [re.split(r"[┃│|]|\s{2,}", line) for line in output.splitlines()]
    rows = [[cell.strip() for cell in row if cell.strip()] for row in cells]
    return [row for row in rows if len(row) > 2]


def command_in(output: str) -> str:
    """The last printed command."""
    return re.findall(r"^ *(recoup run .*)$", output, re.M)[-1]


# ---- the tasks ----


def test_train_in_half_of_the_memory(terminal: Terminal, plain: list[str]) -> None:
    terminal.type("recoup run --trace run.rtrace train.py")
    half = peak_in(terminal.type("recoup simulate run.rtrace --budgets 100").stdout) // 2
    trained = terminal.type(f"recoup run --budget {half} --report run.json train.py")
    assert trained.stdout.splitlines() == plain
    assert terminal.figure("peak_bytes") <= half and terminal.figure("replays") > 0


@needs_suggest
def test_find_a_budget(terminal: Terminal, plain: list[str]) -> None:
    command = command_in(terminal.type("recoup suggest train.py").stdout)
    trained = terminal.type(command.replace("recoup run", "recoup run --report run.json"))
    assert trained.stdout.splitlines() == plain
    assert terminal.figure("peak_bytes") <= terminal.figure("budget_bytes")


@needs_auto
def test_run_in_a_container(terminal: Terminal, plain: list[str]) -> None:
    trained = terminal.type("recoup run --budget auto --report run.json train.py")
    assert trained.stdout.splitlines() == plain
    assert 0 < terminal.figure("peak_bytes") <= terminal.figure("budget_bytes")


@needs_modules
def test_name_the_module_that_holds_most(terminal: Terminal) -> None:
    terminal.type(f"recoup run --budget {PLENTY} --report run.json train.py --batch 2048")
    rows = terminal.report()["peak"]["rows"]
    assert max(rows, key=lambda row: row["bytes"])["module"].split(".")[0] == "large"


@needs_suggest
def test_find_the_largest_batch(terminal: Terminal) -> None:
    budget = f"{24 * MIB}"
    said = terminal.type(f"recoup suggest --batch-size-for {budget} --batch 768 train.py").stdout
    found = re.search(r"The largest batch in .* is ([\d,]+);", said)
    assert found is not None, said
    batch = int(found[1].replace(",", ""))
    assert batch > 768
    trained = terminal.type(f"recoup run --budget {budget} train.py --batch {batch}")
    assert trained.stdout.splitlines() == terminal.losses("--batch", str(batch))


def test_save_and_resume(terminal: Terminal, plain: list[str]) -> None:
    terminal.type("recoup run --budget 14MiB train.py --steps 2 --save saved.pt")
    resumed = terminal.type(
        "recoup run --budget 14MiB --report run.json train.py --resume saved.pt"
    )
    assert resumed.stdout.splitlines() == plain[2:]
    assert terminal.figure("replays") > 0


def test_compare_policies(terminal: Terminal, plain: list[str]) -> None:
    terminal.type("recoup run --trace run.rtrace train.py")
    compared = terminal.type("recoup simulate run.rtrace --policy all --budgets 60").stdout
    heads, cells = table_in(compared)
    shown = dict(zip(heads, cells, strict=True))
    ratios = {
        policy.name: float(shown[policy.name])
        for policy in recoup.policies()
        if shown[policy.name] not in ("-", "slow")
    }
    assert len(ratios) > 3 and min(ratios.values()) >= 1
    best = min(ratios, key=ratios.__getitem__)
    budget = int(shown["bytes"].replace(",", ""))
    trained = terminal.type(
        f"recoup run --budget {budget} --policy {best} --report run.json train.py"
    )
    assert trained.stdout.splitlines() == plain
    assert terminal.figure("peak_bytes") <= budget


def test_see_memory_over_time(terminal: Terminal) -> None:
    terminal.type("recoup run --trace run.rtrace train.py")
    said = terminal.type("recoup simulate run.rtrace --budgets 60 --timeline time.json").stdout
    events = terminal.report("time.json")["traceEvents"]
    memory = [event["args"]["bytes"] for event in events if event["ph"] == "C"]
    assert len(memory) > 100 and 0 < max(memory) <= 0.6 * peak_in(said)
    assert {"program", "replays"} <= {
        event["args"]["name"] for event in events if event["name"] == "thread_name"
    }
    assert any(event["name"] == "evict" for event in events)


def test_following_the_errors_of_small_budgets_leads_to_a_sufficient_one(
    terminal: Terminal, plain: list[str]
) -> None:
    budgets = ["6MiB"]
    while True:
        trained = terminal.type(
            f"recoup run --budget {budgets[-1]} --report run.json train.py", fails=None
        )
        if trained.returncode == 0:
            break
        said = re.search(r"Next: .* recoup run --budget (\S+)\. ", trained.stderr)
        assert said is not None, trained.stderr
        budgets.append(said[1])
    assert 2 <= len(budgets) <= 5
    assert trained.stdout.splitlines() == plain
    assert 6 * MIB < terminal.figure("peak_bytes") <= parse_bytes(budgets[-1])


def test_check_that_replays_are_exact(terminal: Terminal, plain: list[str]) -> None:
    checked = terminal.type("recoup run --budget 14MiB --check-replays --report run.json train.py")
    assert checked.stdout.splitlines() == plain
    assert terminal.figure("replay_checks") >= terminal.figure("replays") > 0


def test_a_model_larger_than_memory(terminal: Terminal, plain: list[str]) -> None:
    terminal.type("recoup run --budget 6MiB train.py", fails=True)
    trained = terminal.type(
        "recoup run --budget 6MiB --spill 64MiB --spill-dir . --report run.json train.py"
    )
    assert trained.stdout.splitlines() == plain
    assert terminal.figure("spills") > 0 and terminal.figure("fetches") > 0
    assert terminal.figure("peak_bytes") <= 6 * MIB


@needs_doctor
def test_what_this_machine_supports(terminal: Terminal) -> None:
    said = terminal.type("recoup doctor").stdout
    assert len(said.splitlines()) <= 24
    for word in (recoup.__version__, "PyTorch", "memory", "disk", "unsupported"):
        assert word in said
