"""Our replays beside those of the DTR authors' own simulator, on their logs.

    python bench/golden.py --golden dtr-golden.csv --logs dtr-logs
    python bench/golden.py --preset --golden dtr-golden.csv dtr-golden-ablation.csv --logs dtr-logs

A cell is a log, a policy and a share of the peak. The golden file has a status (ok, thrash, OOM)
and a time ratio for each: all op time over that of one run. Ours are simulated with bytes alone, as
theirs are: no addresses, every candidate scored, constants charged. With --preset they are those of
the model of their simulator, which must give the same status and the time ratio within 0.1 %; it
ends with 1 when a cell differs.
"""

import argparse
import math
import sys
from pathlib import Path
from typing import Any

from measure import print_table, write_result

import recoup
from dtr_logs import TOLERANCE, GoldenCell, read_golden, simulate_golden
from recoup.offline.traces import Simulation

THRASH = 2.0  # their bound


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--golden", type=Path, nargs="+", required=True, metavar="CSV")
    parser.add_argument("--logs", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--preset", action="store_true", help="the model of their simulator")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    cells = [cell for path in args.golden for cell in read_golden(path)]
    results = (simulate_golden if args.preset else simulate_ours)(cells, args.logs)
    rows = [row_of(cell, result) for cell, result in zip(cells, results, strict=True)]
    different = [
        row
        for row, cell, result in zip(rows, cells, results, strict=True)
        if cell.difference(result) > TOLERANCE
    ]
    print_rows(different if args.preset else rows)
    if args.preset:
        worst = max(cell.difference(result) for cell, result in zip(cells, results, strict=True))
        print(
            f"{len(rows) - len(different)} of {len(rows)} cells equal: the status, and the time "
            f"ratio within {TOLERANCE:.1%}; largest difference {worst:.2g}"
        )
    else:
        print_summary(rows)
    write_result(args.json, "golden", rows)
    return 1 if args.preset and different else 0


def simulate_ours(cells: list[GoldenCell], logs: Path) -> list[Simulation]:
    traces: dict[str, recoup.Trace] = {}
    results = []
    for cell in cells:
        if cell.log not in traces:
            traces[cell.log] = recoup.read_dtr_log(logs / f"{cell.log}.log.gz")
        if cell.budget_bytes is None:
            raise SystemExit("the ablation's scores are those of --preset alone")
        results.append(
            traces[cell.log].simulate(
                cell.budget_bytes,
                policy=cell.policy,
                layout=False,
                small_filter=False,
                sampling=False,
                small_leaf_bytes=0,
                max_replay_ratio=0,
            )
        )
    return results


def row_of(cell: GoldenCell, result: Simulation) -> dict[str, Any]:
    ours = result.time_ratio if result.status == "ok" else None
    theirs = cell.time_ratio
    return {
        "log": cell.log,
        "policy": cell.policy,
        "share": cell.share,
        "golden_status": cell.status,
        "golden_time_ratio": theirs,
        "status": result.status,
        "time_ratio": ours,
        "over_golden": None if ours is None or theirs is None else ours / theirs,
    }


def print_rows(rows: list[dict[str, Any]]) -> None:
    if not rows:
        return
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


def print_summary(rows: list[dict[str, Any]]) -> None:
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


if __name__ == "__main__":
    sys.exit(main())
