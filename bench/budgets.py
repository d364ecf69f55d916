"""What a budget costs: time, replays, deciding and the books, for nets x policies x budgets.

    python bench/budgets.py --nets char_gpt resnet --policies all --shares 1 0.7 0.5
    OMP_NUM_THREADS=1 python bench/budgets.py --policies dtr dtr-eq lru --patience 2 \\
        --steps 4 --pairs 2 --shares 1 .8 .6 .5 .4 .3 --json result.json

On a shared machine one thread is disturbed less than two.

Plain and budgeted runs take turns; a ratio is the median over the pairs. Deciding is search and
bookkeeping as a share of all time in ops, replays and deciding; books are the most bytes that the
records took, as a share of the budget. Bits are compared before anything is reported.
"""

import statistics
from typing import Any

from measure import (
    Trial,
    megabytes,
    paired,
    parser_of,
    print_table,
    program_named,
    say,
    spread,
    unbudgeted_peak,
    write_result,
)
from rss import peak_rss_growth

import recoup


def summary(trials: list[Trial], steps: int) -> dict[str, Any]:
    """Of the last run what is the same in every run, the median of what is not."""
    all_stats = [trial.stats for trial in trials if trial.stats is not None]
    last = all_stats[-1]

    def of_total(stats: recoup.Stats) -> float:
        deciding = stats.search_ns + stats.bookkeeping_ns
        return deciding / (stats.op_ns + stats.replay_ns + deciding)

    return {
        "peak_bytes": last.peak_bytes,
        "replays_per_step": last.replays / steps,
        "evictions_per_step": last.evictions / steps,
        "moves_per_step": last.moves / steps,
        "candidates_visited_per_step": last.candidates_visited / steps,
        "candidates_scored_per_step": last.candidates_scored / steps,
        "replay_over_op_time": statistics.median(s.replay_ns / s.op_ns for s in all_stats),
        "deciding_share": statistics.median(map(of_total, all_stats)),
        "books_share": last.books_peak_bytes / last.budget_bytes,
    }


def cells_of(row: dict[str, Any]) -> list[str]:
    cells = [row["net"], row["policy"], f"{row['budget_share']:.0%}"]
    if not row["feasible"]:
        return [*cells, "-", "does not fit", "-", "-", "-"]
    return [
        *cells,
        megabytes(row["peak_bytes"]),
        f"{row['time_ratio']['median']:.2f}x",
        f"{row['replays_per_step']:,.0f}",
        f"{row['deciding_share']:.1%}",
        f"{row['books_share']:.2%}",
    ]


def main() -> None:
    policies = [policy.name for policy in recoup.policies()]
    parser = parser_of(__doc__, nets=["example_char_gpt", "example_digits_resnet"])
    parser.add_argument("--policies", nargs="+", default=["dtr"], choices=[*policies, "all"])
    parser.add_argument(
        "--shares", nargs="+", type=float, default=[1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3]
    )
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument(
        "--patience", type=float, default=10.0, help="max_replay_ratio of recoup.budget"
    )
    parser.add_argument("--rss", action="store_true", help="peak RSS too: one process a row")
    args = parser.parse_args()
    chosen = policies if "all" in args.policies else args.policies
    rows: list[dict[str, Any]] = []
    for name in args.nets:
        program = program_named(name)
        peak = unbudgeted_peak(program, args.steps)
        for policy in chosen:
            for share in args.shares:
                budget = int(peak * share)
                row: dict[str, Any] = {"net": name, "policy": policy, "budget_share": share}
                row |= {"budget_bytes": budget, "unbudgeted_peak_bytes": peak, "feasible": True}
                try:
                    ratios, trials = paired(
                        program,
                        args.steps,
                        args.pairs,
                        budget,
                        warm_up=not any(done["net"] == name for done in rows),
                        policy=policy,
                        max_replay_ratio=args.patience,
                    )
                    row["time_ratio"] = spread(ratios)
                    row |= summary(trials, args.steps)
                    if args.rss:
                        row["peak_rss_growth_bytes"] = peak_rss_growth(name, args.steps, budget)
                    note = f"{row['time_ratio']['median']:.2f}x"
                except recoup.OutOfBudgetError as error:
                    row |= {"feasible": False, "failed_op": error.op}
                    row["enough_bytes"] = error.enough_bytes
                    note = f"infeasible ({error.op})"
                rows.append(row)
                say(f"{name} {policy} {share:.0%}: {note}")
    print_table(
        "training in a budget, beside plain PyTorch",
        ("net", "policy", "budget", "peak", "time", "replays a step", "deciding", "books"),
        [cells_of(row) for row in rows],
        texts=2,
    )
    write_result(args.out, "budgets", rows)


if __name__ == "__main__":
    main()
