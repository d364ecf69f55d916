"""What the benchmarks share: programs, trials in pairs, and what a result must say of itself.

A program is trained as it is written; a trial times its steps and digests all that it computed, so
that every measurement is also a check (a trial whose bits differ raises).
"""

import argparse
import contextlib
import gc
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
from torch import Tensor, nn

import recoup

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "python"), str(ROOT / "examples")]

import char_gpt  # noqa: E402
import digits_resnet  # noqa: E402

from nets import NETS, Net, net_named  # noqa: E402

UNREACHED = 16 << 30
SEED = 0
FEASIBLE_RATIO = 10.0  # of op and replay time to plain op time


@dataclass
class Outcome:
    """A finished training: what it computed and how long its steps took."""

    tensors: list[Tensor]
    seconds: list[float]

    def digest(self) -> str:
        sha = hashlib.sha256()
        for tensor in self.tensors:
            flat = tensor.detach().contiguous().reshape(-1)
            sha.update(flat.view(torch.uint8).numpy().tobytes())
        return sha.hexdigest()


@dataclass(frozen=True)
class Program:
    name: str
    train: Callable[[int], Outcome]  # that many steps


def state_of(
    model: nn.Module, optimizer: torch.optim.Optimizer, losses: list[float]
) -> list[Tensor]:
    state = [torch.tensor(losses, dtype=torch.float64), *model.state_dict().values()]
    for values in optimizer.state.values():
        state += [value for value in values.values() if isinstance(value, Tensor)]
    return state


def program_of_net(net: Net) -> Program:
    def train(steps: int) -> Outcome:
        torch.manual_seed(SEED)
        model = net.make().train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        losses, seconds = [], []
        for step in range(steps):
            start = time.perf_counter()
            loss = net.loss(model, net.batch(step))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            seconds.append(time.perf_counter() - start)
        return Outcome(state_of(model, optimizer, losses), seconds)

    return Program(net.name, train)


def program_of_example(name: str, module: Any) -> Program:
    def train(steps: int) -> Outcome:
        done = module.train(steps, seed=SEED, quiet=True)
        return Outcome(state_of(done.model, done.optimizer, done.losses), done.seconds)

    return Program(name, train)


EXAMPLES = {"example_char_gpt": char_gpt, "example_digits_resnet": digits_resnet}
PROGRAM_NAMES = [*EXAMPLES, *(net.name for net in NETS)]


def program_named(name: str) -> Program:
    if name in EXAMPLES:
        return program_of_example(name, EXAMPLES[name])
    return program_of_net(net_named(name))


# ---- trials ----
@dataclass
class Trial:
    step_seconds: float  # the median; the first step, which warms up, is left out
    digest: str
    stats: recoup.Stats | None


def trial_of(outcome: Outcome, stats: recoup.Stats | None) -> Trial:
    seconds = outcome.seconds[1:] or outcome.seconds
    return Trial(statistics.median(seconds), outcome.digest(), stats)


def try_plainly(program: Program, steps: int) -> Trial:
    return trial_of(program.train(steps), None)


def try_in(program: Program, steps: int, budget: int, **options: Any) -> Trial:
    """Raises OutOfBudgetError when the budget is too small; the scope is over in any case."""
    run = None
    try:
        with recoup.budget(budget, **options) as run:
            outcome = program.train(steps)
        return trial_of(outcome, run.stats())
    except recoup.OutOfBudgetError as error:
        if run is not None:
            with contextlib.suppress(RuntimeError):  # the scope is over already
                run.finish(UNREACHED)
        raise error.with_traceback(None) from None  # the traceback holds the training's tensors
    finally:
        gc.collect()


def is_feasible(stats: recoup.Stats) -> bool:
    return stats.op_ns + stats.replay_ns <= FEASIBLE_RATIO * stats.op_ns


def paired(
    program: Program, steps: int, pairs: int, budget: int, **options: Any
) -> tuple[list[float], list[Trial]]:
    """Time ratios of budgeted to plain runs that took turns, after one pair to warm up."""
    ratios, trials = [], []
    for index in range(pairs + 1):
        plain = try_plainly(program, steps)
        trial = try_in(program, steps, budget, **options)
        if trial.digest != plain.digest:
            raise RuntimeError(f"{program.name} in {budget:,} bytes {options}: bits differ")
        if index:
            ratios.append(trial.step_seconds / plain.step_seconds)
            trials.append(trial)
    return ratios, trials


def unbudgeted_peak(program: Program, steps: int) -> int:
    stats = try_in(program, steps, UNREACHED).stats
    assert stats is not None
    return stats.peak_bytes


def spread(values: list[float]) -> dict[str, float]:
    """Median and quartiles."""
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3
    return {"median": middle, "q1": low, "q3": high}


# ---- results ----
def provenance() -> dict[str, Any]:
    """With what a result was measured."""
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
    """To a file, or to standard output."""
    result = {"benchmark": name, "provenance": provenance(), "rows": list(rows)}
    text = json.dumps(result, indent=1) + "\n"
    if path is None:
        sys.stdout.write(text)
    else:
        path.write_text(text, encoding="utf-8")


def say(text: str) -> None:
    """Progress, apart from results."""
    print(text, file=sys.stderr, flush=True)


def parser_of(description: str | None, nets: list[str] | None = None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    if nets is not None:
        parser.add_argument("--nets", nargs="+", default=nets, choices=PROGRAM_NAMES, metavar="NET")
    parser.add_argument("--out", type=Path, help="JSON file; none: standard output")
    return parser
