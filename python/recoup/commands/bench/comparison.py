"""The table of alternatives: time and memory of each, and the time of policies in that memory."""

from typing import Any

from recoup._reporting.tables import plain_table, print_table
from recoup.bench.against import policies_of
from recoup.bench.alternatives import Alternative
from recoup.bench.runner import Plan, Results

_COLUMNS = (
    "peak", "of eager", "time", "first step", "bits", "policy", "time", "compute", "bits", "status",
)  # fmt: skip
_TEXTS = ("bits", "policy", "status")


def print_comparison(alternatives: list[Alternative], plan: Plan, results: Results) -> None:
    """Prints one table per net, and the remarks on its alternatives."""
    rows = {(row["net"], row["alternative"]): row for row in results.alternatives}
    for net in plan.nets if alternatives else []:
        table = plain_table("alternative", *_COLUMNS)
        table.title = f"{net}: eager's peak {results.judged_peaks[net] / 1e6:.1f} MB"
        table.title_justify = "left"
        for column in table.columns:
            if column.header in _TEXTS:
                column.justify = "left"
        remarks = []
        for alternative in alternatives:
            row = rows[net, alternative.name]
            cells = _cells(row)
            for policy in policies_of(plan) if row["status"] == "ok" else [""]:
                ours = _cells_of_ours(policy, row["ours"][policy]) if policy else []
                table.add_row(*cells, *ours)
                cells = [""] * len(cells)
            for remark in (row.get("reason"), row.get("note")):
                if remark:
                    remarks.append(f"  {alternative.name}: {remark}")
        print_table(table)
        print(*remarks, "", sep="\n")


def _cells(row: dict[str, Any]) -> list[str]:
    if row["status"] != "ok":
        return [row["alternative"], row["status"], "", "", "", ""]
    return [
        row["alternative"],
        f"{row['peak_bytes'] / 1e6:.1f} MB",
        f"{row['peak_fraction']:.1%}",
        f"{row['time_ratio']:.2f}x",
        f"{row['first_seconds']:.1f} s",
        f"not {', '.join(row['differs'])}" if row["differs"] else "equal",
    ]


def _cells_of_ours(policy: str, row: dict[str, Any]) -> list[str]:
    if row["status"] != "ok":
        return [policy, "", "", "", row["status"]]
    time, compute = f"{row['time_ratio']:.2f}x", f"{row['compute_overhead']:.2f}x"
    return [policy, time, compute, "equal", row["status"]]
