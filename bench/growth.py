"""Measures how work grows with N, in simulations of synthetic programs.

    python bench/growth.py chain --plot docs/results/chain.png
    python bench/growth.py search --plot docs/results/search.png --json docs/results/search.json

chain   DTR's theorem: a chain of N ops, forward and backward, in 2 ceil(sqrt(N)) units of memory.
        Prints the number of ops that run, replays included, over N (the program's own are 2 N). The
        authors' simulator has 2.80 at 100, 2.97 at 800, 3.07 at 6,400 and 3.18 at 409,600 for
        `dtr-eq`; LRU grows faster than N. A policy is left out of longer chains once a run took
        --patience seconds of CPU time.

search  The number of values that an eviction inspects, by search method. The program makes small
        values in short chains, reuses old ones and frees random ones; a third of the values that it
        holds at a time does not fit. N is about the number of values that fit. Counts cover the
        part of a run after memory has filled, divided by its evictions. The printed search time
        covers the whole run; all other figures are the same in every run.

        `scan` inspects all candidates, `sample` about 2 sqrt(N) of them; `kinetic` keeps them in
        order and must decide as `scan` does, or the program stops. `coop` takes windows of blocks.
        `scan` and `coop`, whose work per eviction grows with N, end at --most.
"""

import argparse
import math
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from measure import add_json, parser_of, say, write_result

import recoup
from recoup.bench.harness import pictures
from recoup.bench.harness.tables import print_rows
from recoup.offline import _C

# --- chain ---------------------------------------------------------------------------------------
# A unit so large that 1 % of a budget, the limit of metadata, holds the lineage of a million ops.
CHAIN_UNIT = 64 << 20
LENGTHS = [100, 200, 400, 800, 1600, 6400, 25_600, 102_400, 409_600, 1_000_000]
BOUND = 4


def chain(length: int) -> recoup.Trace:
    """f[i+1] = forward(f[i]); g[i] = backward(f[i], g[i+1]), after which f[i] and g[i+1] die."""
    builder = _C.TraceBuilder()
    builder.add_name("forward")
    builder.add_name("backward")
    builder.add_kernel([CHAIN_UNIT])
    for i in range(length):
        reads = [(i - 1, True, False, False)] if i > 0 else []
        builder.add_op(0, 0, 1, True, reads, [CHAIN_UNIT])
    gradient = None
    for i in range(length - 1, -1, -1):
        reads = [(i, True, False, False)]
        if gradient is not None:
            reads.append((gradient, True, False, False))
        builder.add_op(1, 0, 1, True, reads, [CHAIN_UNIT])
        builder.add_event("die", i, 0)
        if gradient is not None:
            builder.add_event("die", gradient, 0)
        gradient = 2 * length - 1 - i
    return recoup.Trace(builder.build())


def run_chain(trace: recoup.Trace, length: int, policy: str) -> dict[str, Any]:
    start = time.process_time()
    result = trace.simulate(
        2 * (math.isqrt(length - 1) + 1) * CHAIN_UNIT,
        recoup.SimulationOptions(
            policy=policy,
            max_time_ratio=0,
            small_filter=False,
            sampling=False,
            small_result_bytes=0,
            max_replay_ratio=0,
            max_depth=2**31 - 1,
        ),
    )
    return {
        "length": length,
        "policy": policy,
        "status": result.status,
        "ops_over_length": (result.ops + result.stats.replays) / length,
        "replay_depth": result.stats.replay_depth_max,
        "cpu_seconds": time.process_time() - start,
    }


CHAIN_COLUMNS = {
    "policy": "{policy}",
    "N": "{length:,}",
    "status": "{status}",
    "ops / N": "{ops_over_length:.2f}",
    "replay depth": "{replay_depth:,}",
    "CPU seconds": "{cpu_seconds:.2f}",
}


def measure_chain(args: argparse.Namespace) -> None:
    rows: list[dict[str, Any]] = []
    left = list(args.policies)
    for length in sorted(args.lengths):
        if not left:
            break
        say(f"N = {length:,}: {', '.join(left)}")
        trace = chain(length)
        for policy in tuple(left):
            rows.append(run_chain(trace, length, policy))
            if rows[-1]["cpu_seconds"] > args.patience:
                left.remove(policy)
    print_rows("ops over N in 2 ceil(sqrt(N)) units", CHAIN_COLUMNS, rows)
    write_result(args.json, "chain", rows)
    if args.plot is not None:
        ok = [row for row in rows if row["status"] == "ok"]
        points = [(row["policy"], row["length"], row["ops_over_length"]) for row in ok]
        axes = plot_of(points, "N, ops of the chain; forward and backward are 2 N")
        axes.axhline(BOUND, color="grey", linewidth=0.8, linestyle=":", label=f"{BOUND} N ops")
        axes.set_yscale("log", base=2)
        axes.yaxis.set_major_formatter("{x:g}")
        axes.set_ylabel("ops with replays, over N", fontsize=8)
        save(axes, args.plot)


# --- search --------------------------------------------------------------------------------------
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
# A unit so large that 1 % of the budget, the limit of metadata, holds the lineage.
SEARCH_UNIT = 1 << 16
CHAIN = 8  # ops from a parameter to the end of a chain
PARAMETERS = 16
HELD = 1.5  # values that the program holds, over N


def search_program(count: int, length: int) -> recoup.Trace:
    """The first `length` ops of the program; fewer ops are a prefix."""
    draw = random.Random(count)
    builder = _C.TraceBuilder()
    kernels: dict[int, int] = {}

    def op(cost: int, reads: list[int], units: int) -> None:
        nbytes = units * SEARCH_UNIT if units else 64
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
        if draw.random() < 0.5:  # a small result is computed from an old value
            op(draw.randrange(1_000, 10_000), [draw.choice(held)], 0)
            builder.add_event("die", storages, 0)
            storages += 1
        if len(held) > HELD * count:
            dead = draw.randrange(len(held) - 1)  # not the last: the next op reads it
            held[dead], held[-2] = held[-2], held[dead]
            builder.add_event("die", held.pop(-2), 0)
    return recoup.Trace(builder.build())


def run_search(trace: recoup.Trace, count: int, way: str) -> recoup.Simulation:
    result = trace.simulate(
        (count * 15 // 2 + PARAMETERS) * SEARCH_UNIT,
        recoup.SimulationOptions(
            layout=WAYS[way]["policy"] == "coop",
            max_time_ratio=0,
            max_replay_ratio=0,
            small_filter=True,
            **WAYS[way],
        ),
    )
    if result.status != "ok":
        raise SystemExit(f"{way}: {result.status}: {result.reason}")
    return result


def measure_way(
    traces: tuple[recoup.Trace, recoup.Trace], count: int, way: str
) -> tuple[dict[str, Any], recoup.Simulation]:
    first, whole = (run_search(trace, count, way) for trace in traces)

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


SEARCH_COLUMNS = {
    "way": "{way}",
    "N": "{values:,}",
    "evictions": "{evictions:,}",
    "replays": "{replays:,}",
    "visits": "{visits_per_eviction:,.1f}",
    "neighborhoods": "{neighborhoods_per_eviction:,.1f}",
    "ns of search": "{search_ns:,.0f}",
}


def measure_search(args: argparse.Namespace) -> None:
    rows: list[dict[str, Any]] = []
    times: dict[tuple[str, int], float] = {}
    for count in sorted(args.counts):
        traces = search_program(count, 2 * count), search_program(count, 2 * count + args.ops)
        results = {}
        for way in args.ways:
            if way in LINEAR and count > args.most:
                continue
            say(f"N = {count:,}: {way}")
            row, results[way] = measure_way(traces, count, way)
            rows.append(row)
            stats = results[way].stats
            times[way, count] = stats.search_ns / stats.evictions
        for way, result in results.items():
            all_of_them = results.get(way.replace("kinetic", "scan"), result)
            if decided(result) != decided(all_of_them):
                raise SystemExit(f"N = {count}: {way} does not decide as a scan")
    timed = ({**row, "search_ns": times[row["way"], row["values"]]} for row in rows)
    print_rows("beyond the first part of the program", SEARCH_COLUMNS, timed)
    write_result(args.json, "search", rows)
    if args.plot is not None:
        points = [(row["way"], row["values"], row["visits_per_eviction"]) for row in rows]
        axes = plot_of(points, "N, values that fit")
        counts = sorted({row["values"] for row in rows})
        roots = [count**0.5 for count in counts]
        axes.plot(counts, roots, color="grey", linewidth=0.8, linestyle=":", label="sqrt(N)")
        axes.set_yscale("log")
        axes.set_ylabel("values looked at, an eviction", fontsize=8)
        save(axes, args.plot)


# --- both ----------------------------------------------------------------------------------------
def plot_of(points: Sequence[tuple[str, int, float]], label: str) -> Any:
    """Axes with one line for each name in points of (name, N, value)."""
    _, ((axes,),) = pictures.panels(1, 1, (6.4, 3.4))
    for name in dict.fromkeys(name for name, _, _ in points):
        line = [(count, value) for each, count, value in points if each == name]
        axes.plot(*zip(*line, strict=True), marker="o", markersize=3.5, label=name)
    axes.set_xscale("log")
    axes.set_xlabel(label, fontsize=8)
    return axes


def save(axes: Any, path: Path) -> None:
    axes.tick_params(labelsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    pictures.save(axes.figure, path, 100)


def main() -> None:
    parser = parser_of(__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    of_chain = commands.add_parser("chain", help="DTR's theorem")
    of_chain.set_defaults(measure=measure_chain)
    of_chain.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, metavar="N")
    of_chain.add_argument("--policies", nargs="+", default=["dtr-eq", "lru"], metavar="POLICY")
    of_chain.add_argument("--patience", type=float, default=60.0, metavar="SECONDS")
    of_search = commands.add_parser("search", help="values that an eviction looks at")
    of_search.set_defaults(measure=measure_search)
    of_search.add_argument("--counts", type=int, nargs="+", default=COUNTS, metavar="N")
    of_search.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS, metavar="WAY")
    of_search.add_argument("--ops", type=int, default=4_000, help="beyond the first part")
    of_search.add_argument("--most", type=int, default=3_162, metavar="N", help="of scan and coop")
    for each in (of_chain, of_search):
        each.add_argument("--plot", type=Path, metavar="FILE")
    add_json(of_chain, of_search)
    args = parser.parse_args()
    args.measure(args)


if __name__ == "__main__":
    main()
