"""Ways to run a suite: plainly, or each test in a scope of its own."""

from dataclasses import dataclass, field
from typing import Any

BUDGET = 2 << 30
# Added to the peak that a test had with eviction after every op.
SLACK = 4096

PLAIN = "plain"
# A second plain run: its differences to the first show which tests are not deterministic.
AGAIN = "again"


@dataclass(frozen=True)
class Mode:
    options: dict[str, Any] = field(default_factory=dict)
    """Options of `recoup.budget`."""
    aids: str = ""
    """Value of RECOUP_TEST_AIDS; "poison" overwrites the bytes of evicted values."""
    needs: str = ""
    """The mode whose peaks are used as budgets."""


SCOPES = {
    "force": Mode({"small_result_bytes": 0, "evict_after_op": True}, "poison"),
    "dflt": Mode({"evict_after_op": True}, "poison"),
    "loose": Mode(),
    "small": Mode({"small_result_bytes": 0, "check_replays": True}, "poison", needs="force"),
}
MODES = (*SCOPES, AGAIN)


def with_needs(modes: list[str]) -> list[str]:
    """The modes in order of execution: plain first, and before each mode the one that it needs."""
    order = [PLAIN]
    for mode in modes:
        needs = SCOPES[mode].needs if mode in SCOPES else ""
        order += [name for name in (needs, mode) if name and name not in order]
    return order
