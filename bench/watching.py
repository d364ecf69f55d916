"""Measures recoup's cost when nothing needs to be evicted.

    python bench/watching.py

Two measurements, both paired in one process; medians over rounds that alternate:

small op    `a + a` of 16 floats, whose result is too small to be evicted, and of 1024: plain,
            through an empty boxed fallback (recoup's own dispatcher entry with no budget in force),
            and inside a budget that is never reached. The figure is
            (recoup - plain) / (empty - plain): recoup's cost over that of only intercepting the op.
train step  a step with recoup and without memory pressure, over a plain one.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from measure import PROGRAM_NAMES, add_json, parser_of, program_named, say, write_result
from torch import Tensor

import recoup
from recoup import _C
from recoup.bench.harness.tables import print_rows
from recoup.bench.harness.turns import Ratios, in_turns, pairs
from recoup.bench.trial import UNREACHED, Trial, call_in, trial_of


def ns_of_add(a: Tensor, calls: int) -> float:
    add: Callable[[Tensor, Tensor], Tensor] = torch.add
    start = time.perf_counter_ns()
    for _ in range(calls):
        add(a, a)
    return (time.perf_counter_ns() - start) / calls


def ns_empty(a: Tensor, calls: int) -> float:
    _C.pass_through(True)
    try:
        return ns_of_add(a, calls)
    finally:
        _C.pass_through(False)


def ns_recoup(elements: int, calls: int) -> float:
    with recoup.budget(UNREACHED):
        a = torch.ones(elements)
        ns_of_add(a, calls // 10)  # the first use registers the tensor
        return ns_of_add(a, calls)


def small_op(elements: int, calls: int, rounds: int) -> dict[str, Any]:
    """Medians in nanoseconds, and the ratio of the medians."""
    a = torch.ones(elements)
    ways = {
        "plain": lambda: ns_of_add(a, calls),
        "empty": lambda: ns_empty(a, calls),
        "recoup": lambda: ns_recoup(elements, calls),
    }
    row: dict[str, Any] = {"what": "small op", "elements": elements, "rounds": rounds}
    for name, values in in_turns(rounds, ways, warm_ups=1).items():
        row[f"{name}_ns"] = statistics.median(values)
    row["ratio"] = (row["recoup_ns"] - row["plain_ns"]) / (row["empty_ns"] - row["plain_ns"])
    return row


def train_step(name: str, steps: int, rounds: int) -> dict[str, Any]:
    program = program_named(name)

    def inside(plain: Trial) -> Trial:
        trial = trial_of(*call_in(UNREACHED, lambda: program(steps)))
        if trial.digest != plain.digest:
            raise RuntimeError(f"{name}: bits differ")
        return trial

    ratios = Ratios()
    for plain, trial in pairs(rounds, lambda: trial_of(program(steps)), inside):
        ratios.add(plain.step_seconds, trial.step_seconds)
    stats = trial.stats
    assert stats is not None and stats.evictions == 0
    low, middle, high = statistics.quantiles(ratios.each, n=4, method="inclusive")
    return {
        "what": "train step",
        "net": name,
        "rounds": rounds,
        "ops_per_step": stats.op_count / steps,
        "recoup_s": statistics.median(ratios.ours),
        "time_ratio": {"median": middle, "q1": low, "q3": high},
    }


OP_COLUMNS = {
    "floats": "{elements:,}",
    "plain": "{plain_ns:,.0f} ns",
    "empty fallback": "{empty_ns:,.0f} ns",
    "recoup": "{recoup_ns:,.0f} ns",
    "(recoup - plain) / (empty - plain)": "{ratio:.2f}",
}
STEP_COLUMNS = {
    "net": "{net}",
    "ops": "{ops_per_step:,.0f}",
    "with recoup": "{recoup_s:.1fms}",
    "over plain": "{time_ratio[median]:.3f}x",
    "quartiles": "{time_ratio[q1]:.3f} - {time_ratio[q3]:.3f}",
}


def main() -> None:
    parser = parser_of(__doc__)
    nets = ["example_char_gpt", "example_digits_resnet"]
    parser.add_argument("--nets", nargs="+", default=nets, choices=PROGRAM_NAMES, metavar="NET")
    parser.add_argument("--elements", type=int, nargs="+", default=[16, 1024])
    parser.add_argument("--calls", type=int, default=20000, help="adds in a round")
    parser.add_argument("--rounds", type=int, default=15, help="at least 7")
    parser.add_argument("--steps", type=int, default=5, help="of a training in a round")
    add_json(parser)
    args = parser.parse_args()
    if args.rounds < 7:
        parser.error("fewer than 7 rounds make no median")
    ops = [small_op(elements, args.calls, args.rounds) for elements in args.elements]
    say("small op: measured")
    steps = []
    for name in args.nets:
        steps.append(train_step(name, args.steps, args.rounds))
        say(f"{name}: measured")
    print_rows("a small op", OP_COLUMNS, ops, texts=0)
    print_rows("a training step without pressure", STEP_COLUMNS, steps)
    write_result(args.json, "watching", [*ops, *steps])


if __name__ == "__main__":
    main()
