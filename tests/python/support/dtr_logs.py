"""Writes logs in the DTR authors' format, and reads the results of their own simulator."""

import csv
import gzip
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recoup.offline.dtr import DtrProgram
from recoup.offline.traces import Simulation
from shared_data import SHARED

GOLDEN = SHARED / "dtr-golden.csv"
GOLDEN_ABLATION = SHARED / "dtr-golden-ablation.csv"
LOGS = SHARED / "dtr-logs"

Row = dict[str, Any]


# ---- lines ----


def write_log(path: Path, rows: list[Row]) -> Path:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return path


def memory(name: str, size: int, alias: int | None = -1) -> list[Row]:
    rows: list[Row] = [
        {"INSTRUCTION": "MEMORY", "NAME": name, "MEMORY": str(size)},
    ]
    if alias is not None:
        rows.append({"INSTRUCTION": "ALIAS", "NAME": name, "ALIAS": str(alias)})
    return rows


def call(name: str, arguments: list[str], results: list[str], time: int) -> Row:
    return {
        "INSTRUCTION": "CALL",
        "NAME": name,
        "ARGS": arguments,
        "RESULT": results,
        "TIME": str(time),
    }


def mutate(name: str, arguments: list[str], places: list[int], time: int) -> Row:
    return {
        "INSTRUCTION": "MUTATE",
        "NAME": name,
        "ARGS": arguments,
        "MUTATE": places,
        "TIME": str(time),
    }


def constant(name: str, size: int) -> list[Row]:
    return [{"INSTRUCTION": "CONSTANT", "NAME": name}, *memory(name, size, None)]


def copy(target: str, source: str) -> Row:
    return {"INSTRUCTION": "COPY", "DST": target, "SRC": source}


def copy_from(target: str, source: str) -> Row:
    return {"INSTRUCTION": "COPY_FROM", "DST": target, "SRC": source}


def release(name: str) -> Row:
    return {"INSTRUCTION": "RELEASE", "NAME": name}


def annotate(text: str) -> Row:
    return {"INSTRUCTION": "ANNOTATE", "ANNOTATION": text}


# ---- expected results ----

TOLERANCE = 1e-3
_STATUS = {"ok": "ok", "thrash": "too slow", "OOM": "out of budget"}
# The cost of a policy; then whether its score contains staleness and size (1: yes).
_COSTS = {"e*": "dtr", "eq": "dtr-eq", "local": "dtr-local"}
_FACTORS = {"11": "", "10": "-no-size", "01": "-no-staleness", "00": "-only-cost"}
_NO_COST = {"11": "no-cost", "10": "lru", "01": "largest"}


@dataclass(frozen=True)
class GoldenCell:
    """A log, a policy and a fraction of the peak, with the published result."""

    log: str
    policy: str
    fraction: float
    budget_bytes: int | None
    """None: the fraction of the peak, rounded down."""
    status: str
    """The status as `Simulation` names it."""
    time_ratio: float | None
    """None: the run did not complete."""
    replays: int | None
    """None: not published."""

    def difference(self, simulation: Simulation) -> float:
        """Relative difference of the time ratios; infinite if the status differs."""
        if simulation.status != self.status:
            return float("inf")
        return 0.0 if self.time_ratio is None else abs(simulation.time_ratio / self.time_ratio - 1)


def read_golden(path: Path) -> list[GoldenCell]:
    """Reads the file of the policies, or the file of the ablation."""
    with path.open(newline="") as file:
        return [_cell_of(row) for row in csv.DictReader(file)]


def simulate_golden(cells: Sequence[GoldenCell], logs: Path) -> list[Simulation]:
    """Simulates the cells by the model of their simulator."""
    programs = {log: DtrProgram.read(logs / f"{log}.log.gz") for log in {c.log for c in cells}}

    def simulate(cell: GoldenCell) -> Simulation:
        program = programs[cell.log]
        budget = cell.budget_bytes or int(program.unbudgeted_peak_bytes() * cell.fraction)
        return program.simulate(budget, policy=cell.policy)

    with ThreadPoolExecutor() as pool:  # a simulation releases the interpreter lock
        return list(pool.map(simulate, cells))


def _cell_of(row: dict[str, str]) -> GoldenCell:
    replays = row.get("replayed_ops", "")
    return GoldenCell(
        log=row["log"],
        policy=row["policy"] if "policy" in row else _policy_of(row),
        fraction=float(row["ratio"]),
        budget_bytes=int(row["budget_bytes"]) if "budget_bytes" in row else None,
        status=_STATUS[row["status"]],
        time_ratio=float(row["time_ratio"]) if row["status"] == "ok" else None,
        replays=int(replays) if replays else None,
    )


def _policy_of(row: dict[str, str]) -> str:
    factors = row["staleness"] + row["size"]
    if row["cost"] == "none":
        return _NO_COST[factors]
    return _COSTS[row["cost"]] + _FACTORS[factors]
