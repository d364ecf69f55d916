"""The outcomes of the checks so far."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from harness import Results

OK, FAILED, TIMEOUT = "ok", "failed", "time limit"
"""How a process ends."""
SKIPPED, NO_TIME, RUNNING = "skipped", "no time left", "running"
FINAL = (OK, FAILED, TIMEOUT)
"""A check with one of these is not repeated automatically; one that was running when the script was
killed is."""


@dataclass
class Outcome:
    """How a check ended, and its measurements."""

    status: str
    seconds: float = 0.0
    reason: str = ""
    """Why it was skipped or failed, in one line."""
    rows: list[dict[str, Any]] = field(default_factory=list)
    """Its measurements; of a killed check, those until then."""
    output: str = ""
    """The end of its output."""


@dataclass
class Outcomes(Results):
    """The outcomes of all checks, by name."""

    command: ClassVar[str] = "gpu_first_hour"
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Makes outcomes of a file's objects. Raises TypeError for those of other files."""
        for name, row in self.outcomes.items():
            if isinstance(row, dict):
                self.outcomes[name] = Outcome(**row)

    def is_done(self, name: str) -> bool:
        return name in self.outcomes and self.outcomes[name].status in FINAL
