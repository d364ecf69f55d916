"""Checks budgets: whether a larger one is ever worse, and the cost of larger batches in one budget.

    python bench/budgets.py holes --traces runs/*.rtrace dtr-logs/*.log.gz --full-scan
    python bench/budgets.py holes --live unet bilstm gpt2 --cost-model bytes
    python bench/budgets.py batch --net resnet50 --times 1 2 3 4

holes   Every budget in steps of 1 % of the unbudgeted peak, from the peak down until 10 in a row
        fail: in simulation for each of --traces, in real trainings for each of --live (nets of
        `recoup bench`, whose bits must equal those of a plain training). A run that costs more than
        10 times its own ops fails too.

        least   the least budget that works
        holes   larger budgets that fail
        rises   budgets that take over 10 % longer than some smaller one

        A rise is shown with the fastest smaller budget; of several larger ones, with the slowest.
        Ops have their measured costs unless --cost-model bytes is given.

batch   Trains the net of `recoup bench` plainly with its own batch, alternating with batches that
        are `times` as large, in a budget of the plain run's peak. Per `times`, over the pairs:

        time      median of the step time over `times` plain steps
        compute   op time and replays over op time, as the papers report it
"""

import argparse
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from measure import SEED, add_json, megabytes, parser_of, say, write_result

import recoup
from recoup.bench.harness.tables import print_cells, print_rows
from recoup.bench.nets import Batch, Net, net_named
from recoup.bench.patience import TooSlowError, train_in
from recoup.bench.rounds import run_compared, run_pairs
from recoup.bench.simulated import FEASIBLE_RATIO
from recoup.bench.trial import UNREACHED, Trial, compute_overhead, record, run_plainly, train
from recoup.offline.dtr_log import read_any_trace

# --- holes ---------------------------------------------------------------------------------------
FAILURES = 10
"""Failures in a row after which no smaller budget is tried."""
RISE = 1.10
STEPS = 3
HOLES_ALLOWED = 1 / 30


@dataclass(frozen=True)
class Attempt:
    """The result of one budget."""

    percent: int
    """Size in percent of the unbudgeted peak."""
    budget_bytes: int
    time_ratio: float | None
    """Costs of ops and replays over those of ops; None: it failed."""
    cause: str = ""
    """Reason of the failure."""


@dataclass(frozen=True)
class Rise:
    """A larger budget that takes longer."""

    smaller: Attempt
    larger: Attempt
    count: int
    """Number of budgets that take longer than `smaller`; `larger` is the slowest."""

    @property
    def ratio(self) -> float:
        assert self.smaller.time_ratio is not None and self.larger.time_ratio is not None
        return self.larger.time_ratio / self.smaller.time_ratio


def scan(attempt: Callable[[int], Attempt]) -> list[Attempt]:
    """Results from the least budget that works up to the peak; empty if not even the peak works."""
    found: list[Attempt] = []
    failures = 0
    for percent in range(100, 0, -1):
        found.append(attempt(percent))
        failures = 0 if found[-1].time_ratio is not None else failures + 1
        if failures == FAILURES:
            break
    while found and found[-1].time_ratio is None:
        found.pop()
    return found[::-1]


def holes_of(attempts: Iterable[Attempt]) -> list[Attempt]:
    return [attempt for attempt in attempts if attempt.time_ratio is None]


def rises_of(attempts: Iterable[Attempt]) -> list[Rise]:
    """The rises; `attempts` must be sorted from the least budget up."""
    rises: list[Rise] = []
    fastest: Attempt | None = None
    for attempt in attempts:
        if attempt.time_ratio is None:
            continue
        if fastest is None or fastest.time_ratio is None or attempt.time_ratio < fastest.time_ratio:
            fastest = attempt
            continue
        rise = Rise(fastest, attempt, 1)
        if rise.ratio <= RISE:
            continue
        if rises and rises[-1].smaller is fastest:
            last = rises.pop()
            slower = max(last, rise, key=lambda found: found.ratio)
            rise = Rise(fastest, slower.larger, last.count + 1)
        rises.append(rise)
    return rises


def simulated(path: Path, options: dict[str, Any]) -> tuple[int, list[Attempt]]:
    """The unbudgeted peak, and the results of budgets in simulation."""
    trace = read_any_trace(str(path))
    peak = trace.unbudgeted_peak_bytes()

    def attempt(percent: int) -> Attempt:
        budget = max(1, peak * percent // 100)
        result = trace.simulate(
            budget, recoup.SimulationOptions(max_time_ratio=FEASIBLE_RATIO, **options)
        )
        if result.status == "ok":
            return Attempt(percent, budget, result.time_ratio)
        return Attempt(percent, budget, None, result.reason.partition("\n")[0] or result.status)

    return peak, scan(attempt)


def lived(name: str, options: dict[str, Any]) -> tuple[int, list[Attempt]]:
    """As `simulated`, in trainings. Raises RuntimeError if bits differ from a plain training's."""
    net = net_named(name)
    bits = train(net, STEPS, SEED)[1]

    def run(budget: int, plain_ns: int) -> recoup.Stats:
        trained, stats = train_in(budget, plain_ns, lambda: train(net, STEPS, SEED), **options)
        if trained[1] != bits:
            raise RuntimeError(f"{name} in {budget:,} bytes {options}: bits differ")
        return stats

    plain = run(UNREACHED, 1 << 62)

    def attempt(percent: int) -> Attempt:
        budget = plain.peak_bytes * percent // 100
        try:
            stats = run(budget, plain.op_ns)
        except recoup.OutOfBudgetError as error:
            return Attempt(percent, budget, None, str(error).partition("\n")[0])
        except TooSlowError:
            return Attempt(percent, budget, None, "too slow")
        return Attempt(percent, budget, compute_overhead(stats))

    return plain.peak_bytes, scan(attempt)


def row_of(label: str, live: bool, peak: int, attempts: Sequence[Attempt]) -> dict[str, Any]:
    return {
        "net": label,
        "live": live,
        "unbudgeted_peak_bytes": peak,
        "attempts": [asdict(attempt) for attempt in attempts],
        "holes": [asdict(hole) for hole in holes_of(attempts)],
        "rises": [{**asdict(rise), "ratio": rise.ratio} for rise in rises_of(attempts)],
    }


def print_nets(rows: Iterable[dict[str, Any]]) -> None:
    cells = []
    for row in rows:
        attempts = row["attempts"]
        worst = max((rise["ratio"] for rise in row["rises"]), default=None)
        cells.append(
            (
                f"{row['net']}, live" if row["live"] else row["net"],
                megabytes(row["unbudgeted_peak_bytes"]),
                f"{attempts[0]['percent']} %" if attempts else "-",
                str(len(attempts)),
                str(len(row["holes"])),
                str(sum(rise["count"] for rise in row["rises"])),
                f"{worst:.2f}x" if worst else "-",
            )
        )
    print_cells("", ("net", "peak", "least", "budgets", "holes", "rises", "worst"), cells)


def print_holes(rows: Iterable[dict[str, Any]]) -> None:
    columns = {
        "hole in": "{net}",
        "cause": "{cause}",
        "budget": "{percent} %",
        "bytes": "{budget_bytes:,}",
    }
    holes = ({"net": row["net"], **hole} for row in rows for hole in row["holes"])
    print_rows("", columns, holes, texts=2)


def print_rises(rows: Iterable[dict[str, Any]]) -> None:
    columns = {
        "rise in": "{net}",
        "budget": "{smaller[percent]} %",
        "time": "{smaller[time_ratio]:.2f}x",
        "larger": "{larger[percent]} %",
        "its time": "{larger[time_ratio]:.2f}x",
        "rise": "{ratio:.2f}x",
        "budgets": "{count}",
    }
    rises = ({"net": row["net"], **rise} for row in rows for rise in row["rises"])
    print_rows("", columns, rises)


def summary(rows: Sequence[dict[str, Any]]) -> str:
    budgets = sum(len(row["attempts"]) for row in rows)
    holes = sum(len(row["holes"]) for row in rows)
    rises = sum(rise["count"] for row in rows for rise in row["rises"])
    kept = "at most" if holes <= budgets * HOLES_ALLOWED else "more than"
    return (
        f"{budgets} budgets: {holes} holes, {kept} 1 in {1 / HOLES_ALLOWED:.0f}; "
        f"{rises} take over {RISE - 1:.0%} longer than a smaller one"
    )


def measure_holes(args: argparse.Namespace) -> None:
    options: dict[str, Any] = {"cost_model": args.cost_model}
    if args.policy is not None:
        options["policy"] = args.policy
    if args.seed is not None:
        options["seed"] = args.seed
    if args.full_scan:
        options |= {"small_filter": False, "sampling": False}
    rows = []
    for path in args.traces:
        rows.append(row_of(path.name.partition(".")[0], False, *simulated(path, options)))
        say(f"{rows[-1]['net']}: {summary(rows[-1:])}")
    for name in args.live:
        rows.append(row_of(name, True, *lived(name, options)))
        say(f"{rows[-1]['net']}: {summary(rows[-1:])}")
    print_nets(rows)
    for what, print_them in (("holes", print_holes), ("rises", print_rises)):
        if any(row[what] for row in rows):
            print()
            print_them(rows)
    print("\n" + summary(rows))
    write_result(args.json, "holes", [{"options": options, **row} for row in rows])


# --- batch ---------------------------------------------------------------------------------------
def enlarged(net: Net, times: int) -> Net:
    """The same net with batches that are `times` as large."""

    def batch(chance: torch.Generator) -> Batch:
        parts = [net.batch(chance) for _ in range(times)]
        return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])

    return dataclasses.replace(net, batch=batch)


def in_turns(
    net: Net, times: int, policy: str, budget: int, args: argparse.Namespace
) -> dict[str, Any]:
    """Medians of pairs of a plain run and one with the larger batch. Raises if bits differ."""
    large = enlarged(net, times)
    in_memory = run_plainly(large, args.steps, args.seed)
    row = {"net": net.name, "times": times, "policy": policy, "budget_bytes": budget}

    def ours(_: Trial) -> Trial:
        return run_compared(large, args.steps, args.seed, budget, in_memory, policy=policy)

    try:
        ratios, stats = run_pairs(net, args.steps, args.seed, args.pairs, ours)
    except recoup.OutOfBudgetError as error:
        return row | {"time": None, "compute": None, "status": str(error).partition("\n")[0]}
    found = {"status": "ok", "time": ratios.median / times, "compute": compute_overhead(stats)}
    return row | found | {"times_each": [each / times for each in ratios.each]}


def measure_batch(args: argparse.Namespace) -> None:
    net = net_named(args.net)
    budget = record(net, args.steps, args.seed).unbudgeted_peak_bytes()
    rows = [
        in_turns(net, times, policy, budget, args)
        for times in args.times
        for policy in args.policies
    ]
    columns = {
        "policy": "{policy}",
        "batch": "{times}x",
        "time a sample": "{time:.2f}x",
        "compute": "{compute:.3f}x",
        "status": "{status}",
    }
    print(f"{net.name} in {budget:,} bytes")
    print_rows("", columns, rows)
    write_result(args.json, "batch", rows)


# --- both ----------------------------------------------------------------------------------------
def add_holes(commands: Any) -> None:
    parser = commands.add_parser("holes", help="whether a larger budget is ever worse")
    parser.set_defaults(measure=measure_holes)
    parser.add_argument("--traces", type=Path, nargs="+", default=[], metavar="FILE")
    parser.add_argument(
        "--live", nargs="+", default=[], metavar="NET", help="see docs/results/budgets.md"
    )
    parser.add_argument("--policy", help="see `recoup policies` (default: that of recoup.budget)")
    parser.add_argument(
        "--full-scan", action="store_true", help="every candidate is scored, small ones too"
    )
    parser.add_argument("--cost-model", default="measured", choices=["bytes", "measured"])
    parser.add_argument("--seed", type=int, help="of the policy's random choices")


def add_batch(commands: Any) -> None:
    parser = commands.add_parser("batch", help="a larger batch in the memory of a smaller one")
    parser.set_defaults(measure=measure_batch)
    parser.add_argument("--net", default="resnet50")
    parser.add_argument("--times", type=int, nargs="+", default=[1, 2, 3, 4])
    parser.add_argument("--policies", nargs="+", default=["recoup", "dtr", "coop"])
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)


def main() -> None:
    parser = parser_of(__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add_holes(commands)
    add_batch(commands)
    add_json(*commands.choices.values())
    args = parser.parse_args()
    args.measure(args)


if __name__ == "__main__":
    main()
