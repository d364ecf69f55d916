"""Budgets that errors and `recoup suggest` recommend are sufficient."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import recoup
from command import cli
from phase_programs import PROGRAMS, run
from recoup._memory.sizes import parse_bytes

SCRIPT = Path(__file__).with_name("phase_programs.py")
MOST_ERRORS = 12
# As multiples of the unbudgeted peak. Immovable blocks fragment the memory of these programs: the
# kernels of an LSTM hold a dozen blocks while they allocate, and so does a recomputed checkpoint.
MOST_OF_PEAK = {"checkpointed": 1.7, "recurrent": 3.5}
ALWAYS_SUGGESTED = ("ragged_batches", "two_optimizers")  # the others take minutes: `make test-slow`


def recommended(error: recoup.OutOfBudgetError) -> int:
    """The budget of the call in the error; checks that it agrees with the error's figures.

    It is at most 1.25 times the least budget that works, if no smaller one works than one that
    fails.
    """
    said = re.search(
        r'Next: recoup\.budget\("([^"]+)"\), or recoup run --budget (\S+)\.', str(error)
    )
    assert said is not None and said[1] == said[2], str(error)
    size = parse_bytes(said[1])
    assert error.next_bytes <= size <= 1.02 * error.next_bytes + 1
    assert error.least_bytes == 0 or error.budget_bytes < error.least_bytes <= error.enough_bytes
    assert error.budget_bytes < error.next_bytes <= error.enough_bytes
    assert error.next_bytes <= 1.25 * max(error.budget_bytes, error.least_bytes)
    assert error.next_bytes >= min(error.enough_bytes, 1.2 * error.budget_bytes)
    return size


@pytest.mark.parametrize("name", PROGRAMS)
def test_following_errors_leads_to_a_sufficient_budget(name: str) -> None:
    plain = run(name)
    with recoup.budget("4GiB") as unbudgeted:
        assert run(name) == plain
    peak = unbudgeted.stats().peak_bytes
    budget = peak // 6
    for _ in range(MOST_ERRORS):
        try:
            with recoup.budget(budget, options=recoup.Options(max_replay_ratio=3)) as tried:
                assert run(name) == plain
            break
        except recoup.OutOfBudgetError as error:
            if error.run is not None:
                error.run.resume("4GiB")
            budget = recommended(error.with_traceback(None))
            assert budget <= MOST_OF_PEAK.get(name, 1.25) * peak, (budget, peak)
    else:
        raise AssertionError(f"not in {MOST_ERRORS} steps: {budget} of {peak}")
    assert tried.stats().peak_bytes <= budget


def follow(name: str, tmp_path: Path) -> None:
    plain = subprocess.run(
        [sys.executable, str(SCRIPT), name], capture_output=True, text=True, check=True
    )
    file = tmp_path / "suggested.json"
    suggested = cli("suggest", "--whole-run", "--json", str(file), str(SCRIPT), name, cwd=tmp_path)
    if suggested.returncode == 2:
        assert "of its optimizer, but 2 are needed" in suggested.stderr
        return
    assert suggested.returncode == 0, suggested.stderr
    figures = json.loads(file.read_text(encoding="utf-8"))
    for which in ("suggested_knee", "suggested_least"):
        budget = figures[which]["budget"]
        done = cli("run", "--budget", budget, str(SCRIPT), name, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, plain.stdout), (which, budget, done.stderr)


@pytest.mark.parametrize("name", ALWAYS_SUGGESTED)
def test_suggested_budgets_are_sufficient(name: str, tmp_path: Path) -> None:
    follow(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in ALWAYS_SUGGESTED])
def test_all_suggested_budgets_are_sufficient(name: str, tmp_path: Path) -> None:
    follow(name, tmp_path)
