"""Results of the bench at real size: a row a case, which gets a run more each round."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from recoup.bench import result_file
from recoup.bench.nets.real import real_net_named
from recoup.bench.real.ways import CHECKPOINT, PLAIN, RECOUP, Way

BENCHMARK = "bench --size real"
_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@dataclass(frozen=True)
class Plan:
    """What is run."""

    nets: list[str]
    shares: list[float] | None = None
    """Budgets, of each net's peak; None: those of the net."""
    steps: int = 3
    rounds: int = 5
    seed: int = 0
    ways: tuple[Way, ...] = (*PLAIN, CHECKPOINT)
    """What recoup is compared with."""

    def cases(self, net: str) -> Iterator[tuple[Way, float | None]]:
        """Each way with its share of the net's peak; only recoup has one."""
        for way in self.ways:
            yield way, None
        for share in real_net_named(net).shares if self.shares is None else self.shares:
            yield RECOUP, share


@dataclass
class Results:
    """All that is known so far."""

    settings: dict[str, Any]
    peaks: dict[str, dict[str, int]] = field(default_factory=dict)
    """By net, then by way, plain or checkpoint: most bytes of tensors at any time."""
    digests: dict[str, dict[str, str]] = field(default_factory=dict)
    """By net: of all that the plain training computed."""
    rows: list[dict[str, Any]] = field(default_factory=list)
    """A row a case. `status`: "ok", and `runs` has what each round found; else why there are none,
    with what is to be said of that in `note`."""

    def row(self, net: str, way: str, share: float | None) -> dict[str, Any]:
        """Of that case; a new one has no runs."""
        for row in self.rows:
            if (row["net"], row["way"], row["share"]) == (net, way, share):
                return row
        case = {"net": net, "way": way, "share": share}
        self.rows.append({**case, "status": "ok", "note": "", "runs": []})
        return self.rows[-1]

    def rows_of(self, plan: Plan, net: str) -> list[dict[str, Any]]:
        """In the order of the plan's cases."""
        return [self.row(net, way.name, share) for way, share in plan.cases(net)]

    def differ(self, net: str, digests: dict[str, str]) -> list[str]:
        """What is not as the plain training computed it, which was the first to be asked."""
        first = self.digests.setdefault(net, digests)
        return [part for part, bits in first.items() if digests[part] != bits]

    def write(self, path: Path) -> None:
        result_file.write(path, BENCHMARK, asdict(self))


def open_results(path: Path | None, plan: Plan) -> Results:
    """Those of the file, to be gone on with, or new ones. A round more may be run later.

    Raises ValueError when the file is something else, or was measured in another way.
    """
    settings = {
        "steps": plan.steps,
        "seed": plan.seed,
        **result_file.versions(),
        "huge_pages": _huge_pages(),
    }
    if path is None or not path.exists():
        return Results(settings)
    return result_file.read(path, BENCHMARK, Results, settings)


def _huge_pages() -> str:
    """When the system gives them: always, to who asks (madvise), never."""
    choices = _HUGE_PAGES.read_text(encoding="ascii") if _HUGE_PAGES.exists() else "[never]"
    return choices.partition("[")[2].partition("]")[0]
