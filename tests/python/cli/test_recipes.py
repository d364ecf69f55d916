"""docs/recipes.md: every block as it stands, and the claims of each recipe.

tests/frameworks/test_framework_recipes.py runs the recipes of frameworks. A notebook's cells run
one after the other by `exec` in one namespace, as in a kernel.
"""

import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import recipes
import recoup
from conftest import bits_equal
from recipes import IN_FRAMEWORKS, PAGE, RECIPES, assert_squeezed, run

BLOCK_LINES = 15
MIB = 1 << 20
RANKS = 2
TRAINING = "losses = [train_step(batch) for batch in loader]"

Check = Callable[[str], None]
CHECKS: dict[str, Check] = {}
"""By heading, the check of the block."""


def recipe(heading: str) -> Callable[[Check], Check]:
    """Registers a function, which gets the block, as the test of the heading."""

    def add(check: Check) -> Check:
        CHECKS[heading] = check
        return check

    return add


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Blocks write files into the current folder. They must leave no threads."""
    monkeypatch.chdir(tmp_path)
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


def run_both(source: str) -> dict[str, Any]:
    """The variables of the block in its budgets, which must equal those without recoup."""
    plain = recipes.left_by(run(source, recoup=recipes.without_recoup()))
    namespace = run(source)
    ours = recipes.left_by(namespace)
    assert ours.keys() == plain.keys(), f"names: {ours.keys() ^ plain.keys()}"
    different = [name for name in ours if not bits_equal(ours[name], plain[name])]
    assert different == [], f"not as without recoup: {different}"
    return namespace


@pytest.mark.parametrize("heading", [name for name in RECIPES if name not in IN_FRAMEWORKS])
def test_recipe(heading: str) -> None:
    assert heading in CHECKS, "a recipe needs a test"
    CHECKS[heading](RECIPES[heading])


def test_every_check_has_a_recipe() -> None:
    assert CHECKS.keys().isdisjoint(IN_FRAMEWORKS)
    assert {*CHECKS, *IN_FRAMEWORKS} == RECIPES.keys()


@pytest.mark.parametrize("heading", RECIPES)
def test_block_is_short(heading: str) -> None:
    assert len(RECIPES[heading].splitlines()) <= BLOCK_LINES


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("```python\n1\n```\n## A\n", "A: one block of Python is needed, there are 0"),
        ("## A\n```python\n1\n```\n", "the beginning: one block"),
        ("```python\n1\n```\n## A\n```python\n1\n```\n```python\n2\n```\n", "there are 2"),
        ("```python\n1\n```\n## A\n```python\n1\n```\n```bash\nls\n```\n", "A: one block"),
        ("```python\n1\n```\n## A\n```python\n1\n```\n## A\n```python\n1\n```\n", "comes twice"),
    ],
)
def test_a_page_with_a_missing_or_hidden_block_is_refused(text: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        recipes.read_page(text)


def test_a_recipe_with_other_results_fails() -> None:
    for other, what in (
        ("losses = [1.0 if hasattr(recoup, 'Stats') else 2.0]", "losses"),
        ("if hasattr(recoup, 'Stats'): torch.rand(1)", "the next random number"),
        ("if hasattr(recoup, 'Stats'): train_step(loader[0])", "model"),
        ("if hasattr(recoup, 'Stats'): losses = [1.0]", "names"),
    ):
        with pytest.raises(AssertionError, match=what):
            run_both(other)


# ---- claims of the page about the program and its budgets ----


def peak_of(source: str) -> int:
    """The peak of the block in bytes of tensors when nothing is evicted."""
    with recoup.budget("4GiB") as whole:
        run(source, recoup=recipes.without_recoup())
    assert whole.stats().evictions == 0
    return whole.stats().peak_bytes


def test_the_program_has_the_peak_that_the_page_claims() -> None:
    peak_bytes = peak_of(TRAINING)
    said = re.search(r"takes (\d+) MiB of tensors", PAGE.read_text(encoding="utf-8"))
    assert said is not None and round(peak_bytes / MIB) == int(said[1])


# ---- the recipes ----


def squeezed(source: str) -> None:
    assert_squeezed(run_both(source)["run"].stats())


recipe("Evaluation in between")(squeezed)


SAVING = """
with recoup.budget("{}") as run:
    for batch in loader:
        train_step(batch)
        torch.save([model.state_dict(), optimizer.state_dict()], "saved.pt")
"""


@recipe("Evaluation and checkpoints in a tight budget")
def all_phases(source: str) -> None:
    squeezed(source)
    names = run(source)
    model, optimizer = torch.load("saved.pt")
    assert bits_equal(dict(model), dict(names["model"].state_dict()))
    assert bits_equal(optimizer, names["optimizer"].state_dict())
    assert names["run"].stats().escapes == 0  # the next step is as free as before
    with pytest.raises(recoup.OutOfBudgetError):
        run(source.replace("samples.split(512)", "[samples.repeat(2, 1)]"))
    # A checkpoint fits where training does, even below.
    for budget in ("7MiB", "6MiB"):
        fits = []
        for each in (f"with recoup.budget('{budget}'): {TRAINING}", SAVING.format(budget)):
            try:
                run(each)
                fits.append(True)
            except recoup.OutOfBudgetError:
                fits.append(False)
        assert fits == 2 * [budget == "7MiB"]


@recipe("Gradient accumulation")
def accumulation(source: str) -> None:
    squeezed(source)
    # The page claims this.
    added = "with recoup.budget('64MiB'):\n    for batch in loader[:2]: loss_of(batch).backward()\n"
    added += "    gone = [recoup.evict(p.grad) for p in model.parameters()]"
    names = run(added)
    assert not any(names["gone"])
    once = run(added.replace("[:2]", "[:1]"))
    assert any(once["gone"])


@recipe("A notebook")
def notebook(source: str) -> None:
    squeezed(source)
    assert not recoup._C.active()
    _, made, opened, trained, *rest = source.split(recipes.CELL)
    # A cell that raises keeps the scope; the second cell may run again.
    cells = (made, opened, "try: 1 / 0\nexcept ZeroDivisionError: pass\n", opened, trained, *rest)
    squeezed(recipes.CELL.join(cells))
    assert not recoup._C.active()


def elsewhere(heading: str, ranks: int = 0) -> list[recoup.Stats]:
    """Compares runs in a separate process, or in `ranks` ranks. Returns the statistics of each.

    The output of the recipe with recoup is in `ours`, that without recoup in `plain`.
    """
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    command = [sys.executable, *(launcher if ranks else []), recipes.__file__, heading, Path.cwd()]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            _, errors = process.communicate(timeout=240)
        finally:
            process.terminate()  # a launcher then ends its ranks; a killed one would leave them
    assert process.returncode == 0, errors[-4000:]
    found = []
    for rank in range(max(1, ranks)):
        ours, stats = torch.load(f"ours/{rank}.pt")
        plain, _ = torch.load(f"plain/{rank}.pt")
        assert len(ours["losses"]) > 0 and bits_equal(ours, plain)
        found.append(recoup.Stats(**stats))
    return found


def in_ranks(heading: str) -> None:
    for stats in elsewhere(heading, RANKS):
        assert_squeezed(stats)
    losses = [torch.load(f"ours/{rank}.pt")[0]["losses"] for rank in range(RANKS)]
    assert losses[0] != losses[1]  # each rank has its own data


@recipe("DDP")
def ddp(_: str) -> None:
    in_ranks("DDP")


@recipe("FSDP2")
def fsdp2(_: str) -> None:
    in_ranks("FSDP2")


@recipe("Threads")
def threads(source: str) -> None:
    stats = run_both(source)["run"].stats()
    assert_squeezed(stats)
    without = run(source.replace("pool.map", "map"))  # no op of the threads is missing
    assert stats.op_count == without["run"].stats().op_count


@recipe("Saving and resuming")
def saving(source: str) -> None:
    squeezed(source)
    resumed = run(source)
    whole = run(TRAINING)
    assert resumed["losses"] == whole["losses"]
    assert bits_equal(recipes.left_by(resumed)["model"], recipes.left_by(whole)["model"])


@recipe("Another budget for another phase")
def phases(source: str) -> None:
    names = run_both(source)
    training, evaluation = names["training"].stats(), names["evaluation"].stats()
    assert_squeezed(training)
    assert 0 < evaluation.peak_bytes <= evaluation.budget_bytes == training.budget_bytes // 2
    # It is charged for the parameters, and evicts none of them.
    parameters = sum(p.untyped_storage().nbytes() for p in names["model"].parameters())
    assert evaluation.external_bytes >= parameters


SHRINKING = """
with recoup.budget("12MiB") as training:
    losses = [train_step(batch) for batch in loader]
    model.eval()
    training.set_budget("6MiB")
    with torch.no_grad():
        scores = [loss_of(batch).item() for batch in loader]
"""


def test_the_budget_of_one_scope_can_shrink() -> None:
    ours, want = run(SHRINKING), run(RECIPES["Another budget for another phase"])
    assert ours["training"].stats().budget_bytes == 6 * MIB
    assert (ours["losses"], ours["scores"]) == (want["losses"], want["scores"])


# Backward needs 16 MiB when half of the gradients exist.
HALF_WAY = """
def loss_of(batch):
    middle = model[:6](batch)
    middle.register_hook(lambda gradient: print(torch.ones(1 << 22).sum()))
    return (model[6:](middle) - batch).square().mean()
"""


@recipe("A budget that was too small")
def too_small(source: str) -> None:
    stats = run_both(source)["run"].stats()
    assert 2 * MIB < stats.peak_bytes <= stats.budget_bytes
    stats = run_both(HALF_WAY + source.replace("2MiB", "12MiB"))["run"].stats()
    assert 12 * MIB < stats.peak_bytes <= stats.budget_bytes


@recipe("Starting over in a larger budget")
def start_over(source: str) -> None:
    names = run_both(source)
    assert_squeezed(names["run"].stats())
    assert names["budget"] == names["run"].stats().budget_bytes > MIB


@recipe("Results that do not fit at the end")
def finish(source: str) -> None:
    names = run_both(source)
    stats = names["run"].stats()
    assert stats.replays > 0 and stats.budget_bytes > 12 * MIB
    assert not recoup._C.active()
    # No value is missing: backward has all its inputs.
    assert torch.stack(names["results"]).sum().backward() is None


@recipe("Compiled blocks")
def compiled(_: str) -> None:
    # The compiler's threads end with the process.
    [stats] = elsewhere("Compiled blocks")
    assert_squeezed(stats)


@recipe("A model larger than the budget")
def spill_tier(_: str) -> None:
    # In a new process, which has no thread of another test.
    [stats] = elsewhere("A model larger than the budget")
    ours, plain = (torch.load(f"{name}/model.pt") for name in ("ours", "plain"))
    assert bits_equal(dict(ours), dict(plain))
    trained = run("train_step(loader[0])")
    parameters = sum(p.nbytes for p in trained["model"].parameters())
    state = [s for each in trained["optimizer"].state.values() for s in each.values()]
    kept = 2 * parameters + sum(s.nbytes for s in state)
    assert 0 < stats.peak_bytes <= stats.budget_bytes < kept
    assert stats.spills > 0 and stats.fetches > 0


@recipe("Comparing policies")
def policies(source: str) -> None:
    lines: list[tuple[str, str, float]] = []
    names = run(source, print=lambda *row: lines.append(row))
    assert [row[0] for row in lines] == [policy.name for policy in recoup.policies()]
    assert names["trace"].steps() == len(names["loader"])
    assert names["losses"] == run(TRAINING)["losses"]
    fitting = [row for row in lines if row[1] == "ok"]
    assert "planned" in [row[0] for row in fitting]
    assert all(ratio >= 1 for _, _, ratio in fitting)
    # The best policy of the simulation also works in a run.
    best = min(fitting, key=lambda row: row[2])[0]
    with recoup.budget(names["half"], policy=best) as live:
        again = run(TRAINING)
    assert again["losses"] == names["losses"]
    assert live.stats().peak_bytes <= names["half"]
