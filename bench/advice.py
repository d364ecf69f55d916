"""Follows the advice of OutOfBudgetError from budgets that are too small, in real trainings.

    python bench/advice.py --nets unet bert gpt2
    python bench/advice.py --tiny --nets char_gpt tree_lstm

For each net the least budget that works is searched in real trainings of three steps. Then the
training runs in a fraction of it, and again in the budget that the error names, until it works.

    least    the least budget that works, to 3 %, in percent of the unbudgeted peak
    0.9 ...  from this fraction of the least budget: the upper bound that the first error names, and
             the budget that works, both over the least budget; and the number of errors
"""

from dataclasses import asdict, dataclass

from measure import SEED, add_json, find, megabytes, parser_of, write_result

import recoup
from recoup.bench.harness.tables import print_cells
from recoup.bench.nets import Net
from recoup.bench.simulated import bisect, least_budget
from recoup.bench.trial import record, train

STEPS = 3
FRACTIONS = (0.9, 0.7, 0.55)
MOST_ERRORS = 4
RESOLUTION = 0.03


@dataclass(frozen=True)
class Followed:
    """The errors from one budget to one that works."""

    fraction: float
    """The first budget over the least one."""
    upper_bound: float
    """The upper bound in the first error, over the least budget."""
    worked: float | None
    """The budget that works, over the least one; None: none did after `MOST_ERRORS` errors."""
    errors: int


def error_in(net: Net, budget: int) -> recoup.OutOfBudgetError | None:
    """The error of a training in the budget; None: it works."""
    try:
        with recoup.budget(budget):
            train(net, STEPS, SEED)
    except recoup.OutOfBudgetError as error:
        return error
    return None


def least_of(net: Net, guess: int) -> int:
    """The least budget that works in trainings."""
    fails, works = int(guess * 0.85), int(guess * 1.1)
    while error_in(net, works) is not None:
        fails, works = works, int(works * 1.1)
    while error_in(net, fails) is None:
        fails, works = int(fails * 0.9), fails
    return bisect(
        fails, works, lambda budget: error_in(net, budget) is None, resolution=RESOLUTION
    )[1]


def follow(net: Net, least: int, fraction: float) -> Followed:
    """Follows the advice of each error."""
    first = error = error_in(net, int(least * fraction))
    assert first is not None
    errors, budget = 0, 0
    while error is not None and errors < MOST_ERRORS:
        errors += 1
        budget = error.next_bytes
        error = error_in(net, budget)
    worked = budget / least if error is None else None
    return Followed(fraction, first.enough_bytes / least, worked, errors)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--nets", nargs="+", default=["unet"], metavar="NET")
    parser.add_argument("--tiny", action="store_true", help="the nets of the tests")
    add_json(parser)
    args = parser.parse_args()
    rows, cells = [], []
    for name in args.nets:
        net = find(f"tiny:{name}" if args.tiny else name)
        trace = record(net, STEPS, SEED)
        peak = trace.unbudgeted_peak_bytes()
        least = least_of(net, least_budget(trace, "planned", peak) or peak)
        found = [follow(net, least, fraction) for fraction in FRACTIONS]
        ends = (
            f"{one.upper_bound:.2f} / {one.worked or float('nan'):.2f} ({one.errors})"
            for one in found
        )
        cells.append((name, megabytes(peak), f"{least / peak:.0%}", *ends))
        rows.append(
            {"net": name, "unbudgeted_peak_bytes": peak, "least_bytes": least}
            | {"followed": list(map(asdict, found))}
        )
    print_cells("", ("net", "peak", "least", *map(str, FRACTIONS)), cells)
    write_result(args.json, "advice", rows)


if __name__ == "__main__":
    main()
