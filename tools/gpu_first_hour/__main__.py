"""Builds recoup for this Python's PyTorch, and tests and measures it on a GPU.

Usage: tools/gpu_first_hour.sh [--out DIR] [--part N] [--again] [--rehearsal]

Writes DIR/results.json and DIR/page.html after each result, and logs to DIR/logs. A check that has
a result is not repeated, so an interrupted run can be continued. Ends within 39 minutes, a part
within 9. The exit status is 1 if a check failed or reached its time limit.
"""

import argparse
import sys
from pathlib import Path

import machine
import plan
import results
from runner import Place, Runner, say

DEVICE = "cuda:0"
REHEARSAL_DEVICE = "fakegpu:0"


def arguments() -> argparse.Namespace:
    about, _, details = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="gpu_first_hour", description=about, epilog=details.split("\n\n", 1)[1]
    )
    parser.add_argument(
        "--out", type=Path, default=Path("build/first-hour"), help="default: build/first-hour"
    )
    parser.add_argument(
        "--part", type=int, choices=plan.PART_SECONDS, help="one part alone, at most 9 minutes"
    )
    parser.add_argument("--only", nargs="+", metavar="CHECK", help="these checks alone")
    parser.add_argument("--again", action="store_true", help="also what has a result already")
    parser.add_argument(
        "--device", help=f"default: {DEVICE}, and {REHEARSAL_DEVICE} in a rehearsal"
    )
    parser.add_argument(
        "--rehearsal",
        action="store_true",
        help="without a GPU: all checks in tiny sizes, on a test double of a GPU",
    )
    parser.add_argument(
        "--no-build", action="store_true", help="take the recoup that this Python has"
    )
    return parser.parse_args()


def selected(options: argparse.Namespace) -> list[plan.Check]:
    """The chosen checks. Raises ValueError for an unknown name."""
    checks = [check for check in plan.CHECKS if options.part in (None, check.part)]
    if options.only is None:
        return checks
    known = [check.name for check in checks]
    for name in options.only:
        if name not in known:
            raise ValueError(f"no check {name!r}; there are {', '.join(known)}")
    return [check for check in checks if check.name in options.only]


def main() -> int:
    options = arguments()
    out: Path = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    path = out / "results.json"
    device = options.device or (REHEARSAL_DEVICE if options.rehearsal else DEVICE)
    try:
        checks = selected(options)
        found = machine.look()
        no_gpu = found["no_gpu"] if device.startswith("cuda") else ""
        settings = {name: value for name, value in found.items() if name != "no_gpu"}
        settings |= {"rehearsal": options.rehearsal, "device": device}
        if options.again and options.part is None and options.only is None:
            path.unlink(missing_ok=True)
        known = results.Outcomes.open(path, settings)
    except (RuntimeError, ValueError) as error:
        print(f"gpu_first_hour: {error}", file=sys.stderr)
        return 2
    if options.again:
        for check in checks:
            known.outcomes.pop(check.name, None)
    if remark := machine.remark(found["torch"]):
        say(remark)
    if no_gpu:
        say(f"{no_gpu}: checks on a GPU are skipped")
    place = Place(out, device, options.rehearsal, no_gpu, not options.no_build)
    limit = plan.TOTAL_SECONDS if options.part is None else plan.PART_SECONDS[options.part]
    Runner(place, known).run(checks, limit)
    say(f"results: {path} and {out / 'page.html'}")
    bad = (results.FAILED, results.TIMEOUT)
    return int(any(known.outcomes[check.name].status in bad for check in checks))


if __name__ == "__main__":
    sys.exit(main())
