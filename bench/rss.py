"""Peak resident memory of the process over its start: plain, and in 100 and 50 % of the peak.

    python bench/rss.py --nets char_gpt

Every row is a process of its own. The first steps of a tiny training come before the start is
taken, so that the libraries' own memory is not counted.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from measure import (
    megabytes,
    parser_of,
    print_table,
    program_named,
    say,
    try_in,
    try_plainly,
    unbudgeted_peak,
    write_result,
)

WARM_UP = "bilstm"


def status_bytes(field: str) -> int:
    """VmRSS or VmHWM of this process."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(field)


def measure_here(name: str, steps: int, budget: int | None) -> dict[str, Any]:
    """In a fresh process: the growth of its memory over the training of `name`."""
    try_plainly(program_named(WARM_UP), 1)
    if budget is not None:
        try_in(program_named(WARM_UP), 1, 1 << 30)
    program = program_named(name)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # VmHWM starts again
    start = status_bytes("VmRSS")
    trial = try_plainly(program, steps) if budget is None else try_in(program, steps, budget)
    return {"growth_bytes": status_bytes("VmHWM") - start, "digest": trial.digest}


def peak_rss_growth(name: str, steps: int, budget: int | None) -> int:
    """In a process of its own. Raises CalledProcessError when the budget is too small."""
    command = [sys.executable, __file__, "--here", name, "--steps", str(steps)]
    command += [] if budget is None else ["--budget", str(budget)]
    out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return int(json.loads(out)["growth_bytes"])


def main() -> None:
    parser = parser_of(__doc__, nets=["example_char_gpt", "example_digits_resnet"])
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--shares", nargs="+", type=float, default=[1.0, 0.5])
    parser.add_argument("--here", help="measure this net in this process, print one row")
    parser.add_argument("--budget", type=int, help="with --here: bytes; none: plain PyTorch")
    args = parser.parse_args()
    if args.here is not None:
        print(json.dumps(measure_here(args.here, args.steps, args.budget)))
        return
    rows = []
    for name in args.nets:
        peak = unbudgeted_peak(program_named(name), args.steps)
        for share in (None, *args.shares):
            budget = None if share is None else int(peak * share)
            growth = peak_rss_growth(name, args.steps, budget)
            rows.append(
                {
                    "net": name,
                    "budget_share": share,
                    "budget_bytes": budget,
                    "unbudgeted_peak_bytes": peak,
                    "peak_rss_growth_bytes": growth,
                }
            )
            label = "plain" if share is None else f"{share:.0%}"
            say(f"{name} {label}: {growth / 1e6:.1f} MB over the start")
    print_table(
        "peak resident memory over the start of the process",
        ("net", "budget", "", "peak RSS growth", "unbudgeted peak of tensors"),
        [
            (
                row["net"],
                "plain" if row["budget_bytes"] is None else f"{row['budget_share']:.0%}",
                "-" if row["budget_bytes"] is None else megabytes(row["budget_bytes"]),
                megabytes(row["peak_rss_growth_bytes"]),
                megabytes(row["unbudgeted_peak_bytes"]),
            )
            for row in rows
        ],
    )
    write_result(args.out, "rss", rows)


if __name__ == "__main__":
    main()
