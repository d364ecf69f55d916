"""Follows the advice of OutOfBudgetError from budgets that are too small, in real trainings.

    python bench/advice.py --nets unet bert gpt2
    python bench/advice.py --tiny --nets char_gpt tree_lstm

For each net the least budget that works is searched in real trainings of three steps. Then the
training runs in a share of it, and again in the budget that the error names, until it works.

    least    the least budget that works, to 3 %, in percent of the unbudgeted peak
    0.9 ...  from this share of the least budget: the upper bound that the first error names, and
             the budget that works, both over the least budget; and the number of errors
"""

import argparse
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from measure import SEED, megabytes, write_result

import recoup
from recoup._reporting.tables import plain_table, print_table
from recoup.bench.nets import Net, net_named, tiny
from recoup.bench.simulated import least_budget
from recoup.bench.trial import record, train

STEPS = 3
SHARES = (0.9, 0.7, 0.55)
MOST_ERRORS = 4
RESOLUTION = 1.03


@dataclass(frozen=True)
class Followed:
    """The errors from one budget to one that works."""

    share: float
    """The first budget over the least one."""
    upper_bound: float
    """The upper bound in the first error, over the least budget."""
    worked: float | None
    """The budget that works, over the least one; None: none did after `MOST_ERRORS` errors."""
    errors: int


def error_in(net: Net, budget: float) -> recoup.OutOfBudgetError | None:
    """The error of a training in the budget; None: it works."""
    try:
        with recoup.budget(int(budget)):
            train(net, STEPS, SEED)
    except recoup.OutOfBudgetError as error:
        return error
    return None


def least_of(net: Net, guess: float) -> float:
    """The least budget that works in trainings."""
    fails, works = guess * 0.85, guess * 1.1
    while error_in(net, works) is not None:
        fails, works = works, works * 1.1
    while error_in(net, fails) is None:
        fails, works = fails * 0.9, fails
    while works / fails > RESOLUTION:
        middle = (works * fails) ** 0.5
        if error_in(net, middle) is None:
            works = middle
        else:
            fails = middle
    return works


def follow(net: Net, least: float, share: float) -> Followed:
    """Follows the advice of each error."""
    first = error = error_in(net, least * share)
    assert first is not None
    errors, budget = 0, 0
    while error is not None and errors < MOST_ERRORS:
        errors += 1
        budget = error.next_bytes
        error = error_in(net, budget)
    worked = budget / least if error is None else None
    return Followed(share, first.enough_bytes / least, worked, errors)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nets", nargs="+", default=["unet"], metavar="NET")
    parser.add_argument("--tiny", action="store_true", help="the nets of the tests")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    table = plain_table("net", "peak", "least", *map(str, SHARES))
    rows = []
    for name in args.nets:
        net = tiny.net_named(name) if args.tiny else net_named(name)
        with tempfile.TemporaryDirectory() as folder:
            trace = record(net, STEPS, SEED, Path(folder) / "run.rtrace")
        peak = trace.unbudgeted_peak_bytes()
        least = least_of(net, least_budget(trace, "planned", peak) or peak)
        found = [follow(net, least, share) for share in SHARES]
        cells = (
            f"{one.upper_bound:.2f} / {one.worked or float('nan'):.2f} ({one.errors})"
            for one in found
        )
        table.add_row(name, megabytes(peak), f"{least / peak:.0%}", *cells)
        rows.append(
            {"net": name, "unbudgeted_peak_bytes": peak, "least_bytes": int(least)}
            | {"followed": list(map(asdict, found))}
        )
    print_table(table)
    write_result(args.json, "advice", rows)


if __name__ == "__main__":
    main()
