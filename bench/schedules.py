"""Schedules beside the dynamic policies, on traces.

    python bench/schedules.py TRACE...

One step of each trace (a file of `recoup run --trace`, or a log of the DTR authors), bytes alone,
every candidate scored. First the time ratios at some budgets; then what each schedule needs when
nothing presses it: its peak over the unbudgeted one, its time ratio, and that of `dtr` in the same
memory.
"""

import argparse
from pathlib import Path

from measure import print_table, write_result

import recoup
from recoup.offline.dtr_log import read_any_trace

SCHEDULES = [policy.name for policy in recoup.policies() if policy.schedule]
FOR_THE_BUDGET = ("budgeted", "rotor")  # without pressure they keep everything


def last_step(path: str) -> recoup.Trace:
    trace = read_any_trace(path)
    return trace.step() if trace.steps() > 1 else trace


def run(trace: recoup.Trace, policy: str, budget: int) -> recoup.Simulation:
    return trace.simulate(budget, policy=policy, layout=False, plan_ahead=True, sampling=False)


def ratio(result: recoup.Simulation) -> str:
    return f"{result.time_ratio:.2f}" if result.status == "ok" else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("traces", nargs="+", metavar="TRACE")
    parser.add_argument("--shares", type=float, nargs="+", default=[1.0, 0.7, 0.5, 0.3])
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    names = ["dtr", *SCHEDULES, "oracle"]
    rows, ratios, needs = [], [], []
    for path in args.traces:
        trace = last_step(path)
        peak = trace.unbudgeted_peak_bytes()
        label = Path(path).name.partition(".")[0]
        for share in args.shares:
            results = [run(trace, name, int(share * peak)) for name in names]
            rows += [{"trace": label, "share": share, **result.to_dict()} for result in results]
            ratios.append((label, f"{share:.0%}", *map(ratio, results)))
        cells = []
        for name in SCHEDULES:
            if name not in FOR_THE_BUDGET:
                alone = run(trace, name, peak)
                used = alone.stats.peak_bytes
                dtr = run(trace, "dtr", used)
                cells.append(f"{used / peak:.0%}, {ratio(alone)} ({ratio(dtr)})")
        needs.append((label, *cells))
    print_table("time ratios", ("trace", "budget", *names), ratios, texts=2)
    alone_names = [name for name in SCHEDULES if name not in FOR_THE_BUDGET]
    print_table("peak, time ratio (dtr's in that memory)", ("trace", *alone_names), needs)
    write_result(args.json, "schedules", rows)


if __name__ == "__main__":
    main()
