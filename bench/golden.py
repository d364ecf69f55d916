"""Our replays beside those of the DTR authors' own simulator, on their logs.

    python bench/golden.py --golden dtr-golden.csv --logs dtr-logs

A cell is a log, a policy and a share of the peak. The golden file has a status (ok, thrash, OOM)
and a time ratio for each: all op time over that of one run. Ours are simulated with bytes alone, as
theirs are: no addresses, every candidate scored, constants charged.
"""

import argparse
import csv
import math
from pathlib import Path

from measure import print_table, write_result

import recoup

THRASH = 2.0  # their bound


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--golden", type=Path, required=True, metavar="CSV")
    parser.add_argument("--logs", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    traces: dict[str, recoup.Trace] = {}
    rows = []
    with args.golden.open() as file:
        for cell in csv.DictReader(file):
            log, policy = cell["log"], cell["policy"]
            if log not in traces:
                traces[log] = recoup.read_dtr_log(args.logs / f"{log}.log.gz")
            result = traces[log].simulate(
                int(cell["budget_bytes"]),
                policy=policy,
                layout=False,
                small_filter=False,
                sampling=False,
                small_leaf_bytes=0,
                max_replay_ratio=0,
            )
            ours = result.time_ratio if result.status == "ok" else math.inf
            theirs = float(cell["time_ratio"]) if cell["status"] == "ok" else math.inf
            rows.append(
                {
                    "log": log,
                    "policy": policy,
                    "share": float(cell["ratio"]),
                    "golden_status": cell["status"],
                    "golden_time_ratio": None if theirs == math.inf else theirs,
                    "status": result.status,
                    "time_ratio": None if ours == math.inf else ours,
                    "over_golden": None if math.inf in (ours, theirs) else ours / theirs,
                }
            )
    print_table(
        "ours over theirs",
        ("log", "policy", "share", "golden", "ours", "ours / golden"),
        [
            (
                row["log"],
                row["policy"],
                f"{row['share']:g}",
                f"{row['golden_time_ratio'] or row['golden_status']}",
                row["status"] if row["time_ratio"] is None else f"{row['time_ratio']:.4f}",
                "" if row["over_golden"] is None else f"{row['over_golden']:.4f}",
            )
            for row in rows
        ],
        texts=2,
    )
    both = [row["over_golden"] for row in rows if row["over_golden"] is not None]
    mean = math.exp(sum(map(math.log, both)) / len(both))
    lost = [row for row in rows if row["golden_status"] == "ok" and row["time_ratio"] is None]
    won = [
        row
        for row in rows
        if row["golden_status"] != "ok" and (row["time_ratio"] or math.inf) <= THRASH
    ]
    print(
        f"{len(both)} cells that both run: geometric mean {mean:.4f}, worst {max(both):.4f}; "
        f"{len(lost)} that only theirs runs, {len(won)} that only ours runs within {THRASH:g}x"
    )
    write_result(args.json, "golden", rows)


if __name__ == "__main__":
    main()
