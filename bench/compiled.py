"""Measures transformer nets of the bench, compiled block by block in budgets, and alternatives.

    OMP_NUM_THREADS=1 python bench/compiled.py --out build/compiled.json [--nets gpt2]

For each net: Inductor on the whole model at some values of activation_memory_budget; eager and
compiled blocks with the memory of each of these, and with shares of the eager peak; the least
budgets, by simulation. Times are relative to plain eager PyTorch: medians of rounds that alternate
between all ways. Prints a table in Markdown.
"""

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

import recoup
from recoup._memory.sizes import format_bytes
from recoup.bench.alternatives import alternatives_named
from recoup.bench.blocks import chains_of
from recoup.bench.judge import judged_peak_bytes
from recoup.bench.nets import Net, net_named
from recoup.bench.simulated import least_budget
from recoup.bench.trial import record, run_in, run_plainly, train

NETS = ["bert", "gpt2", "gpt3", "swin"]
WHOLE = ["inductor-1.0", "inductor-0.5", "inductor-0.0"]
SHARES = [0.8, 0.6, 0.4, 0.3]


def compiled_blocks(net: Net) -> Net:
    def make() -> nn.Module:
        model = net.make()
        for chain in chains_of(net, model):
            for i, block in enumerate(chain):
                chain[i] = torch.compile(block)  # type: ignore[call-overload]
        return model

    return replace(net, make=make)


def peak_and_least(net: Net, steps: int) -> tuple[int, int]:
    """The unbudgeted peak of tensors, and the least budget that works, from a trace."""
    with tempfile.TemporaryDirectory() as folder:
        trace = record(net, steps, 0, Path(folder) / "run.rtrace")
    peak = trace.unbudgeted_peak_bytes()
    return peak, least_budget(trace, "planned", peak)


class Timed:
    """A way to train, with the results of its rounds."""

    def __init__(self, name: str, run: Callable[[], tuple[float, str]]) -> None:
        self.name = name
        self.run = run
        self.ratios: list[float] = []
        self.digests: set[str] = set()
        self.failure = ""

    def round(self, plain_seconds: float) -> None:
        if self.failure:
            return
        try:
            seconds, digest = self.run()
        except recoup.OutOfBudgetError as error:
            self.failure = f"out of budget: {error.least_bytes:,} bytes needed"
            return
        self.ratios.append(seconds / plain_seconds)
        self.digests.add(digest)


def plainly(net: Net, steps: int) -> Callable[[], tuple[float, str]]:
    def run() -> tuple[float, str]:
        trial = run_plainly(net, steps, 0)
        return trial.step_seconds, trial.digest

    return run


def budgeted(net: Net, steps: int, budget: int) -> Callable[[], tuple[float, str]]:
    def run() -> tuple[float, str]:
        trial = run_in(net, steps, 0, budget)
        return trial.step_seconds, trial.digest

    return run


def measure(name: str, steps: int, rounds: int) -> dict[str, Any]:
    eager = net_named(name)
    blocks = compiled_blocks(eager)
    train(eager, 1, 0)
    train(blocks, 1, 0)  # compiles
    peak, least = peak_and_least(eager, steps)
    blocks_peak, blocks_least = peak_and_least(blocks, steps)
    whole = {}
    for alternative in alternatives_named(WHOLE):
        with alternative.around():
            changed = alternative.change(eager)
            train(changed, 1, 0)
            judged = judged_peak_bytes(changed, steps, 0)
            ratios = []
            for _ in range(rounds):
                plain = plainly(eager, steps)()[0]
                ratios.append(plainly(changed, steps)()[0] / plain)
            whole[alternative.name] = {
                "peak_bytes": judged, "time_ratio": statistics.median(ratios),
                "note": alternative.note(),
            }  # fmt: skip
        torch._dynamo.reset()
    budgets = {f"{share:.0%}": int(share * peak) for share in SHARES}
    budgets |= {f"as {way}": row["peak_bytes"] for way, row in whole.items()}
    ways = [Timed("compiled blocks, no budget", plainly(blocks, steps))]
    for label, budget in budgets.items():
        ways.append(Timed(f"eager {label}", budgeted(eager, steps, budget)))
        ways.append(Timed(f"compiled {label}", budgeted(blocks, steps, budget)))
    train(blocks, 1, 0)
    for _ in range(rounds):
        for way in ways:
            way.round(plainly(eager, steps)()[0])
    eager_digests = {d for way in ways if way.name.startswith("eager") for d in way.digests}
    compiled_digests = {d for way in ways if way.name.startswith("compiled ") for d in way.digests}
    return {
        "net": name, "peak_bytes": peak, "least_bytes": least, "blocks_peak_bytes": blocks_peak,
        "blocks_least_bytes": blocks_least, "whole": whole, "budgets": budgets,
        "one_digest": len(eager_digests) == 1 and len(compiled_digests) == 1,
        "ways": {
            way.name: way.failure or {"time_ratio": statistics.median(way.ratios)} for way in ways
        },
    }  # fmt: skip


def table(row: dict[str, Any]) -> list[str]:
    def share(count: int) -> str:
        return f"{count / row['peak_bytes']:.0%}"

    def time(way: str) -> str:
        cell = row["ways"][way]
        return cell if isinstance(cell, str) else f"{cell['time_ratio']:.2f}"

    bits = "equal in all budgets" if row["one_digest"] else "DIFFERENT"
    lines = [
        f"**{row['net']}**, eager's peak {format_bytes(row['peak_bytes'])}. Least budget: eager "
        f"{share(row['least_bytes'])}, compiled blocks {share(row['blocks_least_bytes'])}. "
        f"Compiled blocks without a budget: {share(row['blocks_peak_bytes'])}, "
        f"{time('compiled blocks, no budget')}. Bits: {bits}.",
        "",
        "| memory | compiler alone | eager in a budget | compiled blocks in a budget |",
        "|---|---|---|---|",
    ]
    for label, budget in row["budgets"].items():
        alone = row["whole"].get(label.removeprefix("as "))
        cells = [
            share(budget) + (f" ({label})" if alone else ""),
            f"{alone['time_ratio']:.2f}" if alone else "",
            time(f"eager {label}"),
            time(f"compiled {label}"),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", nargs="+", default=NETS)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = []
    for name in options.nets:
        rows.append(measure(name, options.steps, options.rounds))
        if options.out is not None:
            options.out.write_text(json.dumps(rows, indent=1))
    for row in rows:
        print("\n".join(table(row)), "\n")


if __name__ == "__main__":
    main()
