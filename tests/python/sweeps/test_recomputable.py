"""Results of ops can be evicted, except for those that docs/results/recomputable.md lists."""

import re
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "results" / "recomputable.md"

sys.path.append(str(ROOT / "bench"))
import recomputable  # noqa: E402


def listed() -> dict[str, set[str]]:
    """The ops on the page whose results stay, by reason."""
    rows = re.findall(r"^- (.*?): (`.*`)$", PAGE.read_text(), re.MULTILINE)
    return {reason: set(re.findall(r"`(.*?)`", names)) for reason, names in rows}


def unlisted(found: Any) -> dict[str, str]:
    known = listed()
    assert known, "the page lists nothing"
    return {
        name: reason
        for name, reason in found.ops.items()
        if reason and name not in known.get(reason, set())
    }


def test_results_of_some_operators_are_evicted() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = recomputable.measure(one_in=12, seed=1, limit=3)
    assert unlisted(found) == {}
    assert len(found.ops) > 80


@pytest.mark.slow
def test_results_of_all_operators_are_evicted() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = recomputable.measure(one_in=1, seed=0, limit=4)
    assert unlisted(found) == {}
    evicted = [name for name, reason in found.ops.items() if not reason]
    deterministic = [
        name for name, reason in found.ops.items() if "uninitialized memory" not in reason
    ]
    assert len(evicted) >= 0.99 * len(deterministic)
    assert found.bytes[""] >= 0.99 * sum(found.bytes.values())
