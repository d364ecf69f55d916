"""`recoup bench`: trains networks in budgets, with real tensors."""

import argparse
import sys

from recoup.bench.rounds import BitsDifferError
from recoup.commands.bench import real as real_bench
from recoup.commands.bench import small as small_bench
from recoup.commands.exit_codes import INTERRUPTED
from recoup.commands.interrupts import plain_interrupts


def run(options: argparse.Namespace) -> int:
    """Runs the cases and writes the files. Returns the exit code."""
    try:
        with plain_interrupts():
            (real_bench if options.size == "real" else small_bench).run(options)
    except (OSError, RuntimeError, ValueError, BitsDifferError) as error:
        options.fail(str(error))
    except KeyboardInterrupt:
        kept = ""
        if options.out is not None and options.out.exists():
            kept = (
                f"; {options.out} has the results so far, and the same command continues from there"
            )
        print(f"recoup bench: interrupted{kept}", file=sys.stderr)
        return INTERRUPTED
    return 0
