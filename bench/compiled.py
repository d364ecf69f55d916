"""Measures transformer nets of the bench, compiled block by block in budgets, and alternatives.

    OMP_NUM_THREADS=1 python bench/compiled.py --json build/compiled.json [--nets gpt2]

For each net: Inductor on the whole model at some values of activation_memory_budget; eager and
compiled blocks with the memory of each of these, and with fractions of the eager peak; the least
budgets, by simulation. Times are relative to plain eager PyTorch: medians of rounds that alternate
between all ways. Prints a table in Markdown.
"""

import statistics
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from measure import SEED, add_json, parser_of, write_result
from torch import nn

import recoup
from recoup._memory.sizes import format_bytes
from recoup.bench.alternatives import alternatives_named
from recoup.bench.blocks import chains_of
from recoup.bench.harness.tables import markdown_lines
from recoup.bench.harness.turns import in_turns
from recoup.bench.judge import judged_peak_bytes
from recoup.bench.nets import Net, net_named
from recoup.bench.simulated import least_budget
from recoup.bench.trial import record, run_in, run_plainly, train

NETS = ["bert", "gpt2", "gpt3", "swin"]
WHOLE = ["inductor-1.0", "inductor-0.5", "inductor-0.0"]
FRACTIONS = [0.8, 0.6, 0.4, 0.3]


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
    trace = record(net, steps, SEED)
    peak = trace.unbudgeted_peak_bytes()
    return peak, least_budget(trace, "planned", peak)


def timed(eager: Net, net: Net, steps: int, budget: int | None = None) -> tuple[float, str] | str:
    """Time over that of an eager run before it, and the digest; or why the budget is too small."""
    plain = run_plainly(eager, steps, SEED)
    try:
        if budget is None:
            trial = run_plainly(net, steps, SEED)
        else:
            trial = run_in(net, steps, SEED, budget)
    except recoup.OutOfBudgetError as error:
        return f"out of budget: {error.least_bytes:,} bytes needed"
    return trial.step_seconds / plain.step_seconds, trial.digest


def times_of(results: list[tuple[float, str] | str]) -> dict[str, float] | str:
    """The median ratio of a way's rounds, or why there is none."""
    ratios = [each[0] for each in results if not isinstance(each, str)]
    return {"time_ratio": statistics.median(ratios)} if ratios else str(results[0])


def whole_models(eager: Net, steps: int, rounds: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of the compiler alone, by the name of the alternative."""
    for alternative in alternatives_named(WHOLE):
        with alternative.around():
            changed = alternative.change(eager)
            train(changed, 1, SEED)
            judged = judged_peak_bytes(changed, steps, SEED)
            found = [timed(eager, changed, steps) for _ in range(rounds)]
            row = {"peak_bytes": judged, "note": alternative.note()}
            yield alternative.name, row | times_of(found)
        torch._dynamo.reset()


def measure(name: str, steps: int, rounds: int) -> dict[str, Any]:
    eager = net_named(name)
    blocks = compiled_blocks(eager)
    train(eager, 1, SEED)
    train(blocks, 1, SEED)  # compiles
    peak, least = peak_and_least(eager, steps)
    blocks_peak, blocks_least = peak_and_least(blocks, steps)
    whole = dict(whole_models(eager, steps, rounds))
    budgets = {f"{fraction:.0%}": int(fraction * peak) for fraction in FRACTIONS}
    budgets |= {f"as {way}": row["peak_bytes"] for way, row in whole.items()}
    ways = {"compiled blocks, no budget": partial(timed, eager, blocks, steps)}
    for label, budget in budgets.items():
        for kind, net in (("eager", eager), ("compiled", blocks)):
            ways[f"{kind} {label}"] = partial(timed, eager, net, steps, budget)
    train(blocks, 1, SEED)
    found = in_turns(rounds, ways)
    digests: dict[str, set[str]] = {"eager": set(), "compiled": set()}
    for way, results in found.items():
        digests[way.partition(" ")[0]] |= {each[1] for each in results if not isinstance(each, str)}
    return {
        "net": name, "peak_bytes": peak, "least_bytes": least, "blocks_peak_bytes": blocks_peak,
        "blocks_least_bytes": blocks_least, "whole": whole, "budgets": budgets,
        "one_digest": all(len(each) == 1 for each in digests.values()),
        "ways": {way: times_of(results) for way, results in found.items()},
    }  # fmt: skip


def table(row: dict[str, Any]) -> list[str]:
    def percent(count: int) -> str:
        return f"{count / row['peak_bytes']:.0%}"

    def time(way: str) -> str:
        cell = row["ways"][way]
        return cell if isinstance(cell, str) else f"{cell['time_ratio']:.2f}"

    bits = "equal in all budgets" if row["one_digest"] else "DIFFERENT"
    lines = [
        f"**{row['net']}**, eager's peak {format_bytes(row['peak_bytes'])}. Least budget: eager "
        f"{percent(row['least_bytes'])}, compiled blocks {percent(row['blocks_least_bytes'])}. "
        f"Compiled blocks without a budget: {percent(row['blocks_peak_bytes'])}, "
        f"{time('compiled blocks, no budget')}. Bits: {bits}.",
        "",
    ]
    rows = []
    for label, budget in row["budgets"].items():
        alone = row["whole"].get(label.removeprefix("as "))
        cells = [
            percent(budget) + (f" ({label})" if alone else ""),
            f"{alone['time_ratio']:.2f}" if alone else "",
            time(f"eager {label}"),
            time(f"compiled {label}"),
        ]
        rows.append(cells)
    columns = ("memory", "compiler alone", "eager in a budget", "compiled blocks in a budget")
    return lines + markdown_lines(columns, rows)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--nets", nargs="+", default=NETS)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    add_json(parser)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name in options.nets:
        rows.append(measure(name, options.steps, options.rounds))
        write_result(options.json, "compiled", rows)
    for row in rows:
        print("\n".join(table(row)), "\n")


if __name__ == "__main__":
    main()
