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
from measure import (
    paired,
    parser_of,
    print_table,
    program_named,
    say,
    spread,
    write_result,
)
from torch import Tensor

import recoup
from recoup import _C
from recoup.bench.trial import UNREACHED


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
    ns_of_add(a, calls)  # warms up
    ns_empty(a, calls)
    ns_recoup(elements, calls)
    plain, empty, ours = [], [], []
    for _ in range(rounds):
        plain.append(ns_of_add(a, calls))
        empty.append(ns_empty(a, calls))
        ours.append(ns_recoup(elements, calls))
    row: dict[str, Any] = {"what": "small op", "elements": elements, "rounds": rounds}
    for name, values in (("plain", plain), ("empty", empty), ("recoup", ours)):
        row[f"{name}_ns"] = statistics.median(values)
    row["ratio"] = (row["recoup_ns"] - row["plain_ns"]) / (row["empty_ns"] - row["plain_ns"])
    return row


def train_step(name: str, steps: int, rounds: int) -> dict[str, Any]:
    ratios, trials = paired(program_named(name), steps, rounds, UNREACHED)
    stats = trials[-1].stats
    assert stats is not None and stats.evictions == 0
    ours_s = statistics.median(trial.step_seconds for trial in trials)
    return {
        "what": "train step",
        "net": name,
        "rounds": rounds,
        "ops_per_step": stats.op_count / steps,
        "recoup_s": ours_s,
        "time_ratio": spread(ratios),
    }


def main() -> None:
    parser = parser_of(__doc__, nets=["example_char_gpt", "example_digits_resnet"])
    parser.add_argument("--elements", type=int, nargs="+", default=[16, 1024])
    parser.add_argument("--calls", type=int, default=20000, help="adds in a round")
    parser.add_argument("--rounds", type=int, default=15, help="at least 7")
    parser.add_argument("--steps", type=int, default=5, help="of a training in a round")
    args = parser.parse_args()
    if args.rounds < 7:
        parser.error("fewer than 7 rounds make no median")
    ops = [small_op(elements, args.calls, args.rounds) for elements in args.elements]
    say("small op: measured")
    steps = []
    for name in args.nets:
        steps.append(train_step(name, args.steps, args.rounds))
        say(f"{name}: measured")
    print_table(
        "a small op",
        ("floats", "plain", "empty fallback", "recoup", "(recoup - plain) / (empty - plain)"),
        [
            (
                f"{op['elements']:,}",
                *(f"{op[f'{n}_ns']:,.0f} ns" for n in ("plain", "empty", "recoup")),
                f"{op['ratio']:.2f}",
            )
            for op in ops
        ],
        texts=0,
    )
    print_table(
        "a training step without pressure",
        ("net", "ops", "with recoup", "over plain", "quartiles"),
        [
            (
                row["net"],
                f"{row['ops_per_step']:,.0f}",
                f"{1e3 * row['recoup_s']:.1f} ms",
                f"{row['time_ratio']['median']:.3f}x",
                f"{row['time_ratio']['q1']:.3f} - {row['time_ratio']['q3']:.3f}",
            )
            for row in steps
        ],
    )
    write_result(args.out, "watching", [*ops, *steps])


if __name__ == "__main__":
    main()
