"""Results of the bench at real size: one row per case, with one run per round."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from recoup.bench.harness import results as harness
from recoup.bench.nets.real import real_net_named
from recoup.bench.real.ways import CHECKPOINT, PLAIN, RECOUP, TIER, Way

_WITH_TIER = (0.25, 0.2)
"""Further fractions for cases with a tier, which are below the state of most nets."""
_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@dataclass(frozen=True)
class Plan:
    """The cases to run."""

    nets: list[str]
    fractions: list[float] | None = None
    """Budgets as fractions of each net's peak; None: the net's own."""
    steps: int = 3
    rounds: int = 5
    seed: int = 0
    ways: tuple[Way, ...] = (*PLAIN, CHECKPOINT)
    """The ways that recoup is compared with."""
    spill: str | None = None
    """Size of the spill tier of further cases; None: there are none."""
    spill_dir: str | None = None

    def cases(self, net: str) -> Iterator[tuple[Way, float | None]]:
        """Each way with its fraction of the net's peak; only recoup has a fraction."""
        for way in self.ways:
            yield way, None
        fractions = real_net_named(net).fractions if self.fractions is None else self.fractions
        for fraction in fractions:
            yield RECOUP, fraction
        if self.spill is not None:
            for fraction in (*fractions, *(_WITH_TIER if self.fractions is None else ())):
                yield TIER, fraction


@dataclass
class Results(harness.Results):
    """All results so far."""

    command: ClassVar[str] = "recoup bench --size real"
    peaks: dict[str, dict[str, int]] = field(default_factory=dict)
    """By net, then by way, plain or checkpoint: maximum bytes of tensors at any time."""
    digests: dict[str, dict[str, str]] = field(default_factory=dict)
    """By net: digests of the results of the plain training."""
    rows: list[dict[str, Any]] = field(default_factory=list)
    """A row per case. `status` is "ok", and `runs` has the result of each round; or the reason why
    there are none, explained in `note`."""

    def row(self, net: str, way: str, fraction: float | None) -> dict[str, Any]:
        """The row of a case; a new row has no runs."""
        for row in self.rows:
            if (row["net"], row["way"], row["fraction"]) == (net, way, fraction):
                return row
        case = {"net": net, "way": way, "fraction": fraction}
        self.rows.append({**case, "status": "ok", "note": "", "runs": []})
        return self.rows[-1]

    def rows_of(self, plan: Plan, net: str) -> list[dict[str, Any]]:
        """The rows in the order of the plan's cases."""
        return [self.row(net, way.name, fraction) for way, fraction in plan.cases(net)]

    def differ(self, net: str, digests: dict[str, str]) -> list[str]:
        """Parts that differ from the results of the net's first plain training."""
        first = self.digests.setdefault(net, digests)
        return [part for part, bits in first.items() if digests[part] != bits]


def open_results(path: Path | None, plan: Plan) -> Results:
    """The results in the file, which can be continued also with more rounds, or new ones.

    Raises ValueError if the file is no result file or was measured with other settings.
    """
    settings = {
        "steps": plan.steps,
        "seed": plan.seed,
        **harness.versions(),
        "huge_pages": _huge_pages(),
    }
    return Results.open(path, settings)


def _huge_pages() -> str:
    """When the system provides huge pages: always, on request (madvise), never."""
    choices = _HUGE_PAGES.read_text(encoding="ascii") if _HUGE_PAGES.exists() else "[never]"
    return choices.partition("[")[2].partition("]")[0]
