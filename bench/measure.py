"""Shared parts of the scripts in this folder: arguments, programs to train, and the file of rows.

The turns, processes and tables of measurements are in `recoup.bench.harness`.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import recoup
from recoup.bench.harness import results
from recoup.bench.harness.processes import call
from recoup.bench.nets import Net, net_named, tiny
from recoup.bench.nets.real import real_net_named
from recoup.bench.trial import Trained, run_steps

ROOT = Path(__file__).resolve().parents[1]
SEED = 0


def find(name: str) -> Net:
    """The net of `recoup bench` of that name; `real:NAME` and `tiny:NAME` are those of published
    size and those of the tests. Raises ValueError for an unknown name."""
    kind, _, name = name.rpartition(":")
    if kind == "real":
        return real_net_named(name).net
    return tiny.net_named(name) if kind == "tiny" else net_named(name)


# --- arguments -----------------------------------------------------------------------------------
def parser_of(description: str | None) -> argparse.ArgumentParser:
    """A parser whose help is a script's docstring."""
    return argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def add_json(*parsers: argparse.ArgumentParser) -> None:
    """Adds the option for the file of rows."""
    for parser in parsers:
        parser.add_argument(
            "--json", "--out", dest="json", type=Path, metavar="FILE", help="write rows as JSON"
        )


# --- programs ------------------------------------------------------------------------------------
sys.path[:0] = [str(ROOT / "tests" / "python" / "support"), str(ROOT / "examples")]

import char_gpt  # noqa: E402
import digits_resnet  # noqa: E402

Program = Callable[[int], Trained]
"""Trains for a number of steps."""
EXAMPLES = {"example_char_gpt": char_gpt, "example_digits_resnet": digits_resnet}
PROGRAM_NAMES = [*EXAMPLES, *(net.name for net in tiny.NETS)]


def program_of_net(net: Net) -> Program:
    """The training of a net."""
    return lambda steps: run_steps(net, steps, SEED)


def program_named(name: str) -> Program:
    """One of the examples, or the training of a net of the tests."""
    if name not in EXAMPLES:
        return program_of_net(tiny.net_named(name))

    def train(steps: int) -> Trained:
        found = EXAMPLES[name].train(steps, SEED, True)
        return Trained(found.model, found.optimizer, found.losses, found.seconds)

    return train


def recorded(program: Program, steps: int, path: Path) -> recoup.Trace:
    """The trace of a training, which the file keeps.

    Makes no digest, as a trial would: values that NumPy has seen cannot be evicted.
    """
    with recoup.trace(path):
        program(steps)
    return recoup.Trace.read(path)


def per_step(
    early: recoup.Stats, late: recoup.Stats, steps: int, counters: Iterable[str]
) -> dict[str, float]:
    """How much the named counters have grown, for each of the steps in between."""
    return {name: (getattr(late, name) - getattr(early, name)) / steps for name in counters}


def later_half(
    net: Net, steps: int, run: recoup.Run, counters: Iterable[str]
) -> tuple[Trained, float, dict[str, float]]:
    """Trains a net in a budget. Returns the training, and for a step of the later half its time in
    seconds and the named counters of `recoup.Stats`."""
    first = steps // 2
    early, start = run.stats(), time.perf_counter()

    def before(step: int) -> None:
        nonlocal early, start
        if step == first:
            early, start = run.stats(), time.perf_counter()

    trained = run_steps(net, steps, SEED, before=before)
    seconds, late = time.perf_counter() - start, run.stats()
    count = steps - first
    return trained, seconds / count, per_step(early, late, count, counters)


# --- results -------------------------------------------------------------------------------------
def write_result(path: Path | None, name: str, rows: Iterable[dict[str, Any]]) -> None:
    """Writes the rows with versions and hardware as JSON, if a file is given."""
    if path is not None:
        commit = call(["git", "-C", ROOT, "describe", "--always", "--dirty"]).output.strip()
        settings = {"seed": SEED, "commit": commit, **results.versions()}
        results.write(path, name, {"settings": settings, "rows": list(rows)})


def megabytes(count: int) -> str:
    """A number of bytes in words."""
    return f"{count / 1e6:.1f} MB"


def say(text: str) -> None:
    """Prints progress to stderr, apart from results."""
    print(text, file=sys.stderr, flush=True)
