"""DTR's theorem: a chain of N ops, forward and backward, in 2 ceil(sqrt(N)) units of memory.

    python bench/chain.py --plot docs/chain.png

Prints all ops that run, replays included, over N (the program's own are 2 N). The authors'
simulator has 2.80 at 100, 2.97 at 800, 3.07 at 6,400 and 3.18 at 409,600 for `dtr-eq`; LRU grows
faster than N. A policy is left out of longer chains once a run took --patience seconds of CPU.
"""

import argparse
import math
import time
from pathlib import Path
from typing import Any

from measure import print_table, say, write_result

import recoup
from recoup import _C

# So that 1 % of a budget, which bounds the engine's books, holds the lineage of a million ops.
UNIT = 64 << 20
LENGTHS = [100, 200, 400, 800, 1600, 6400, 25_600, 102_400, 409_600, 1_000_000]
BOUND = 4


def chain(length: int) -> recoup.Trace:
    """f[i+1] = forward(f[i]); g[i] = backward(f[i], g[i+1]), after which f[i] and g[i+1] die."""
    builder = _C.TraceBuilder()
    builder.add_name("forward")
    builder.add_name("backward")
    builder.add_kernel([UNIT])
    for i in range(length):
        reads = [(i - 1, True, False, False)] if i > 0 else []
        builder.add_op(0, 0, 1, True, reads, [UNIT])
    gradient = None
    for i in range(length - 1, -1, -1):
        reads = [(i, True, False, False)]
        if gradient is not None:
            reads.append((gradient, True, False, False))
        builder.add_op(1, 0, 1, True, reads, [UNIT])
        builder.add_event("die", i, 0)
        if gradient is not None:
            builder.add_event("die", gradient, 0)
        gradient = 2 * length - 1 - i
    return recoup.Trace(builder.build())


def measure(trace: recoup.Trace, length: int, policy: str) -> dict[str, Any]:
    start = time.process_time()
    result = trace.simulate(
        2 * (math.isqrt(length - 1) + 1) * UNIT,
        policy=policy,
        small_filter=False,
        sampling=False,
        small_leaf_bytes=0,
        max_replay_ratio=0,
        max_depth=2**31 - 1,
        max_time_ratio=0,
    )
    return {
        "length": length,
        "policy": policy,
        "status": result.status,
        "ops_over_length": (result.ops + result.stats.replays) / length,
        "replay_depth": result.stats.replay_depth_max,
        "cpu_seconds": time.process_time() - start,
    }


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import ScalarFormatter

    figure, axes = plt.subplots(figsize=(5.2, 3.3), dpi=100)
    for policy in dict.fromkeys(row["policy"] for row in rows):
        points = [
            (row["length"], row["ops_over_length"])
            for row in rows
            if row["policy"] == policy and row["status"] == "ok"
        ]
        axes.plot(*zip(*points, strict=True), marker="o", markersize=3.5, label=policy)
    axes.axhline(BOUND, color="grey", linewidth=0.8, linestyle=":", label=f"{BOUND} N ops")
    axes.set_xscale("log")
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.set_xlabel("N, ops of the chain; forward and backward are 2 N", fontsize=8)
    axes.set_ylabel("ops with replays, over N", fontsize=8)
    axes.tick_params(labelsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    figure.tight_layout()
    # No time or version in the file: the same data gives the same picture.
    figure.savefig(path, metadata={"Software": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, metavar="N")
    parser.add_argument("--policies", nargs="+", default=["dtr-eq", "lru"], metavar="POLICY")
    parser.add_argument("--patience", type=float, default=60.0, metavar="SECONDS")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw ops / N against N")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    left = list(args.policies)
    for length in sorted(args.lengths):
        if not left:
            break
        say(f"N = {length:,}: {', '.join(left)}")
        trace = chain(length)
        for policy in tuple(left):
            rows.append(measure(trace, length, policy))
            if rows[-1]["cpu_seconds"] > args.patience:
                left.remove(policy)
    print_table(
        "ops over N in 2 ceil(sqrt(N)) units",
        ("policy", "N", "status", "ops / N", "replay depth", "CPU seconds"),
        [
            (
                row["policy"],
                f"{row['length']:,}",
                row["status"],
                f"{row['ops_over_length']:.2f}",
                f"{row['replay_depth']:,}",
                f"{row['cpu_seconds']:.2f}",
            )
            for row in rows
        ],
    )
    write_result(args.json, "chain", rows)
    if args.plot is not None:
        plot(rows, args.plot)


if __name__ == "__main__":
    main()
