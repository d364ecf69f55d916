"""`recoup bench`: networks in budgets, on real tensors."""

import argparse
import importlib.util
import sys
from typing import Any

from recoup.bench.rounds import BitsDifferError
from recoup.commands import real_bench, small_bench
from recoup.commands.bench_arguments import add_arguments, settle


def add_bench_command(commands: Any) -> None:
    """Adds the command to the parser's subparsers."""
    parser = commands.add_parser(
        "bench",
        help="train networks in budgets, and compare",
        description="Each case trains a network in a budget, a share of the network's unbudgeted "
        "peak. A case whose bits differ stops it. Small: eleven narrow networks under policies, in "
        "turns with plain trainings, in this process. Real: six networks of published size beside "
        "other allocators, each case in a process of its own; about half an hour a round on two "
        "cores that do nothing else, and 16 GB of memory. --nets, --budgets and --rounds cut it.",
    )
    add_arguments(parser)
    parser.set_defaults(command=_bench, fail=parser.error)


def _bench(options: argparse.Namespace) -> int:
    if importlib.util.find_spec("transformers") is None:
        options.fail("recoup bench needs transformers: pip install 'recoup[bench]'")
    try:
        settle(options)
        (real_bench if options.size == "real" else small_bench).run(options)
    except (OSError, RuntimeError, ValueError, BitsDifferError) as error:
        options.fail(str(error))
    except KeyboardInterrupt:
        kept = ""
        if options.out is not None and options.out.exists():
            kept = f"; {options.out} has what is done, and goes on from there"
        print(f"recoup bench: interrupted{kept}", file=sys.stderr)
        return 130
    return 0
