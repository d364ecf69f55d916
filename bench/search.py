"""Ways to search for what to evict: how many values an eviction looks at.

    python bench/search.py --plot docs/search.png --json docs/search.json

The program makes small values in short chains, uses old ones again and lets go of random ones; a
third of what it holds at a time does not fit. N is about how many values do. Counted is what a run
does beyond the first part of it, in which the memory fills, over evictions. The search time that is
printed is of the whole run; all else is the same in every run.

`scan` looks at all candidates, `sample` at about 2 sqrt(N) of them, `kinetic` keeps them in order
and must decide as `scan` does, or this stops. `coop` takes windows of blocks. `scan` and `coop`,
whose work grows with N at every eviction, end at --most.
"""

import argparse
import random
from pathlib import Path
from typing import Any

from measure import print_table, say, write_result

import recoup
from recoup import _C

COUNTS = [100, 316, 1_000, 3_162, 10_000, 31_623, 100_000]
WAYS: dict[str, dict[str, Any]] = {
    "recoup, scan": {"policy": "recoup", "kinetic": False},
    "recoup, kinetic": {"policy": "recoup", "kinetic": True},
    "dtr, scan": {"policy": "dtr", "sampling": False},
    "dtr, sample": {"policy": "dtr", "sampling": True},
    "dtr, kinetic": {"policy": "dtr", "kinetic": True},
    "dtr-eq, scan": {"policy": "dtr-eq", "sampling": False},
    "dtr-eq, kinetic": {"policy": "dtr-eq", "kinetic": True},
    "coop": {"policy": "coop"},
}
LINEAR = ["recoup, scan", "dtr, scan", "dtr-eq, scan", "coop"]
# So that 1 % of the budget, which bounds the engine's books, holds the lineage.
UNIT = 1 << 16
CHAIN = 8  # ops from a parameter to the end of a chain
PARAMETERS = 16
HELD = 1.5  # values that the program holds, over N


def program(count: int, length: int) -> recoup.Trace:
    """The first `length` ops of it; fewer ops are a prefix."""
    draw = random.Random(count)
    builder = _C.TraceBuilder()
    kernels: dict[int, int] = {}

    def op(cost: int, reads: list[int], units: int) -> None:
        nbytes = units * UNIT if units else 64
        if nbytes not in kernels:
            kernels[nbytes] = len(kernels)
            builder.add_kernel([nbytes])
        operands = [(storage, True, False, False) for storage in reads]
        builder.add_op(0, kernels[nbytes], cost, bool(reads), operands, [nbytes])

    builder.add_name("op")
    for _ in range(PARAMETERS):
        op(1, [], 1)
    storages = PARAMETERS
    held: list[int] = []
    last = 0
    for index in range(length):
        parent = draw.randrange(PARAMETERS) if index % CHAIN == 0 else last
        op(draw.randrange(1_000, 100_000), [parent], draw.randrange(1, 16))
        last = storages
        held.append(last)
        storages += 1
        if draw.random() < 0.5:  # something is measured of an old one
            op(draw.randrange(1_000, 10_000), [draw.choice(held)], 0)
            builder.add_event("die", storages, 0)
            storages += 1
        if len(held) > HELD * count:
            dead = draw.randrange(len(held) - 1)  # not the last: the next op reads it
            held[dead], held[-2] = held[-2], held[dead]
            builder.add_event("die", held.pop(-2), 0)
    return recoup.Trace(builder.build())


def run(trace: recoup.Trace, count: int, way: str) -> recoup.Simulation:
    result = trace.simulate(
        (count * 15 // 2 + PARAMETERS) * UNIT,
        **{"small_filter": True, **WAYS[way]},
        layout=WAYS[way]["policy"] == "coop",  # a score needs no addresses
        max_time_ratio=0,
        max_replay_ratio=0,
    )
    if result.status != "ok":
        raise SystemExit(f"{way}: {result.status}: {result.reason}")
    return result


def measure(
    traces: tuple[recoup.Trace, recoup.Trace], count: int, way: str
) -> tuple[dict[str, Any], recoup.Simulation]:
    first, whole = (run(trace, count, way) for trace in traces)

    def beyond(what: str) -> int:
        return int(getattr(whole.stats, what)) - int(getattr(first.stats, what))

    evictions = beyond("evictions")
    return {
        "values": count,
        "way": way,
        "evictions": evictions,
        "replays": beyond("replays"),
        "visits_per_eviction": beyond("candidates_visited") / evictions,
        "neighborhoods_per_eviction": beyond("candidates_scored") / evictions,
    }, whole


def decided(result: recoup.Simulation) -> tuple[Any, ...]:
    stats = result.stats
    return stats.evictions, stats.evicted_bytes, stats.replays, result.time_ratio


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 3.4), dpi=100)
    for way in dict.fromkeys(row["way"] for row in rows):
        points = [(row["values"], row["visits_per_eviction"]) for row in rows if row["way"] == way]
        axes.plot(*zip(*points, strict=True), marker="o", markersize=3.5, label=way)
    counts = sorted({row["values"] for row in rows})
    roots = [count**0.5 for count in counts]
    axes.plot(counts, roots, color="grey", linewidth=0.8, linestyle=":", label="sqrt(N)")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("N, values that fit", fontsize=8)
    axes.set_ylabel("values looked at, an eviction", fontsize=8)
    axes.tick_params(labelsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.tight_layout()
    # No time or version in the file: the same data gives the same picture.
    figure.savefig(path, metadata={"Software": None})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--counts", type=int, nargs="+", default=COUNTS, metavar="N")
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS, metavar="WAY")
    parser.add_argument("--ops", type=int, default=4_000, help="beyond the first part")
    parser.add_argument("--most", type=int, default=3_162, metavar="N", help="of scan and coop")
    parser.add_argument("--plot", type=Path, metavar="FILE")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    times: dict[tuple[str, int], float] = {}
    for count in sorted(args.counts):
        traces = program(count, 2 * count), program(count, 2 * count + args.ops)
        results = {}
        for way in args.ways:
            if way in LINEAR and count > args.most:
                continue
            say(f"N = {count:,}: {way}")
            row, results[way] = measure(traces, count, way)
            rows.append(row)
            stats = results[way].stats
            times[way, count] = stats.search_ns / stats.evictions
        for way, result in results.items():
            all_of_them = results.get(way.replace("kinetic", "scan"), result)
            if decided(result) != decided(all_of_them):
                raise SystemExit(f"N = {count}: {way} does not decide as a scan")
    print_table(
        "beyond the first part of the program",
        ("way", "N", "evictions", "replays", "visits", "neighborhoods", "ns of search"),
        [
            (
                row["way"],
                f"{row['values']:,}",
                f"{row['evictions']:,}",
                f"{row['replays']:,}",
                f"{row['visits_per_eviction']:,.1f}",
                f"{row['neighborhoods_per_eviction']:,.1f}",
                f"{times[row['way'], row['values']]:,.0f}",
            )
            for row in rows
        ],
    )
    write_result(args.json, "search", rows)
    if args.plot is not None:
        plot(rows, args.plot)


if __name__ == "__main__":
    main()
