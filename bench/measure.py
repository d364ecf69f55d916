"""Shared parts of the benchmarks: programs to train, paired trials, and results with provenance.

A program is trained unmodified. A trial times its steps and digests all that it computed, so every
measurement is also a check: a trial whose bits differ raises.
"""

import argparse
import hashlib
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import recoup
from recoup.bench.trial import Trial, call_in

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "python" / "support"), str(ROOT / "examples")]

import char_gpt  # noqa: E402
import digits_resnet  # noqa: E402
from trained import Trained, bytes_of  # noqa: E402

from recoup.bench.nets.net import Net  # noqa: E402
from recoup.bench.nets.tiny import NETS, net_named, seeded  # noqa: E402

SEED = 0


def digest_of(trained: Trained) -> str:
    """Digest of all that a training computed."""
    sha = hashlib.sha256()
    for name, tensor in trained.tensors():
        sha.update(name.encode())
        sha.update(bytes_of(tensor).numpy().tobytes())
    return sha.hexdigest()


@dataclass(frozen=True)
class Program:
    name: str
    train: Callable[[int], Trained]  # takes the number of steps


def program_of_net(net: Net) -> Program:
    def train(steps: int) -> Trained:
        torch.manual_seed(SEED)
        model = net.make().train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        trained = Trained(model, optimizer)
        for step in range(steps):
            start = time.perf_counter()
            loss = net.loss(model, net.batch(seeded(step)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            trained.losses.append(loss.item())
            trained.seconds.append(time.perf_counter() - start)
        return trained

    return Program(net.name, train)


EXAMPLES = {"example_char_gpt": char_gpt, "example_digits_resnet": digits_resnet}
PROGRAM_NAMES = [*EXAMPLES, *(net.name for net in NETS)]


def program_named(name: str) -> Program:
    if name in EXAMPLES:
        return Program(name, lambda steps: EXAMPLES[name].train(steps, SEED, True))
    return program_of_net(net_named(name))


# --- trials --------------------------------------------------------------------------------------
def trial_of(trained: Trained, stats: recoup.Stats | None) -> Trial:
    seconds = trained.seconds[1:] or trained.seconds
    return Trial(statistics.median(seconds), digest_of(trained), stats)


def try_plainly(program: Program, steps: int) -> Trial:
    return trial_of(program.train(steps), None)


def try_in(program: Program, steps: int, budget: int) -> Trial:
    """Raises OutOfBudgetError if the budget is too small; the scope has ended in any case."""
    return trial_of(*call_in(budget, lambda: program.train(steps)))


def paired(
    program: Program, steps: int, pairs: int, budget: int
) -> tuple[list[float], list[Trial]]:
    """Time ratios of budgeted to plain runs that alternate, after one pair that warms up."""
    ratios, trials = [], []
    for index in range(-1, pairs):
        plain = try_plainly(program, steps)
        trial = try_in(program, steps, budget)
        if trial.digest != plain.digest:
            raise RuntimeError(f"{program.name} in {budget:,} bytes: bits differ")
        if index >= 0:
            ratios.append(trial.step_seconds / plain.step_seconds)
            trials.append(trial)
    return ratios, trials


def spread(values: list[float]) -> dict[str, float]:
    """Median and quartiles."""
    low, middle, high = (
        statistics.quantiles(values, n=4, method="inclusive")
        if len(values) > 1
        else [values[0]] * 3
    )
    return {"median": middle, "q1": low, "q3": high}


# --- results -------------------------------------------------------------------------------------
def provenance() -> dict[str, Any]:
    """Versions and hardware of a measurement."""
    commit = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "seed": SEED,
        "commit": commit.stdout.strip(),
        "recoup": recoup.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
    }


def write_result(path: Path | None, name: str, rows: Iterable[dict[str, Any]]) -> None:
    """Writes the rows as JSON, if a file is given."""
    if path is not None:
        result = {"benchmark": name, "provenance": provenance(), "rows": list(rows)}
        path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def print_markdown(rows: Iterable[dict[str, str]]) -> list[dict[str, str]]:
    """Prints a table in Markdown, each row when it is known. Returns the rows."""
    known: list[dict[str, str]] = []
    for row in rows:
        lines = [row.values()] if known else [row.keys(), ["---"] * len(row), row.values()]
        for cells in lines:
            print(f"| {' | '.join(cells)} |", flush=True)
        known.append(row)
    return known


def print_table(
    title: str, columns: Iterable[str], rows: Iterable[Iterable[str]], *, texts: int = 1
) -> None:
    """Prints a table; the first `texts` columns are text, the others numbers."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=140)
    table = Table(title=title, title_justify="left", title_style="bold")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index < texts else "right")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def megabytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB"


def say(text: str) -> None:
    """Prints progress to stderr, apart from results."""
    print(text, file=sys.stderr, flush=True)


def parser_of(description: str | None, nets: list[str] | None = None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    if nets is not None:
        parser.add_argument("--nets", nargs="+", default=nets, choices=PROGRAM_NAMES, metavar="NET")
    parser.add_argument("--json", dest="out", type=Path, metavar="FILE", help="write JSON too")
    return parser
