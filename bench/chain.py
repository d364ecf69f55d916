"""DTR's theorem: a chain of N ops, forward and backward, in 2 ceil(sqrt(N)) units of memory.

    python bench/chain.py --lengths 100 800 6400

Prints all ops that run, replays included, over N (the program's own are 2 N), for `dtr-eq`, `dtr`
and `lru`. The authors' simulator has 2.80 at 100, 2.97 at 800 and 3.07 at 6,400 for its own; LRU
grows faster than N.
"""

import argparse
import math
import time
from pathlib import Path

from measure import print_table, write_result

import recoup
from recoup import _C

UNIT = 64


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


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=[100, 800, 6400])
    parser.add_argument("--policies", nargs="+", default=["dtr-eq", "dtr", "lru"])
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    rows = []
    for length in args.lengths:
        trace = chain(length)
        budget = 2 * (math.isqrt(length - 1) + 1) * UNIT
        for policy in args.policies:
            start = time.perf_counter()
            result = trace.simulate(
                budget,
                policy=policy,
                small_filter=False,
                sampling=False,
                small_leaf_bytes=0,
                max_replay_ratio=0,
                max_depth=2**31 - 1,
                max_time_ratio=0,
            )
            seconds = time.perf_counter() - start
            rows.append(
                {
                    "length": length,
                    "policy": policy,
                    "status": result.status,
                    "ops_over_length": (result.ops + result.stats.replays) / length,
                    "replay_depth": result.stats.replay_depth_max,
                    "seconds": seconds,
                }
            )
    print_table(
        "ops over N in 2 ceil(sqrt(N)) units",
        ("policy", "N", "status", "ops / N", "replay depth", "seconds"),
        [
            (
                row["policy"],
                f"{row['length']:,}",
                row["status"],
                f"{row['ops_over_length']:.2f}",
                f"{row['replay_depth']:,}",
                f"{row['seconds']:.2f}",
            )
            for row in rows
        ],
    )
    write_result(args.json, "chain", rows)


if __name__ == "__main__":
    main()
