"""A larger batch in the memory of a smaller one: what an image costs.

    python bench/batch.py --net resnet50 --times 1 2 3 4

The net of `recoup bench` is trained with its batch, plainly, and with `times` that batch in a
budget of what the plain run took at most, in turns. Per `times`, over the pairs:

time       median of the step time over `times` plain steps
compute    op time and replays over op time: what the papers give
"""

import argparse
import dataclasses
import statistics
import tempfile
from pathlib import Path

import torch
from measure import print_table, write_result

import recoup
from recoup.bench.nets import Batch, Net, net_named
from recoup.bench.trial import record, run_in, run_plainly


def enlarged(net: Net, times: int) -> Net:
    """The same net with batches of as many of its own."""

    def batch(chance: torch.Generator) -> Batch:
        parts = [net.batch(chance) for _ in range(times)]
        return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])

    return dataclasses.replace(net, batch=batch)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--net", default="resnet50")
    parser.add_argument("--times", type=int, nargs="+", default=[1, 2, 3, 4])
    parser.add_argument("--policies", nargs="+", default=["recoup", "dtr", "coop"])
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    net = net_named(args.net)
    with tempfile.TemporaryDirectory() as folder:
        trace = record(net, args.steps, args.seed, Path(folder) / "run.rtrace")
    budget = trace.unbudgeted_peak_bytes()
    rows = []
    for times in args.times:
        large = enlarged(net, times)
        bits = run_plainly(large, args.steps, args.seed).digest
        for policy in args.policies:
            ratios = []
            row = {"net": net.name, "times": times, "policy": policy, "budget_bytes": budget}
            try:
                for _ in range(args.pairs):
                    plain = run_plainly(net, args.steps, args.seed)
                    trial = run_in(large, args.steps, args.seed, budget, policy=policy)
                    if trial.digest != bits:
                        raise RuntimeError(f"{net.name} under {policy}: bits differ")
                    ratios.append(trial.step_seconds / (times * plain.step_seconds))
            except recoup.OutOfBudgetError as error:
                rows.append(row | {"status": str(error).partition("\n")[0]})
                continue
            assert trial.stats is not None
            compute = (trial.stats.op_ns + trial.stats.replay_cost_ns) / trial.stats.op_ns
            rows.append(
                row
                | {"status": "ok", "time": statistics.median(ratios), "compute": compute}
                | {"times_each": ratios}
            )
    print_table(
        f"{net.name} in {budget:,} bytes",
        ("batch", "policy", "time a sample", "compute"),
        [
            (
                f"{row['times']}x",
                row["policy"],
                f"{row['time']:.2f}x" if "time" in row else "-",
                f"{row['compute']:.3f}x" if "compute" in row else row["status"],
            )
            for row in rows
        ],
    )
    write_result(args.json, "batch", rows)


if __name__ == "__main__":
    main()
