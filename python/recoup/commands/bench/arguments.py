"""The arguments of `recoup bench`, and their checks before PyTorch is loaded."""

import argparse
import importlib.util
from typing import Any

from recoup._memory.sizes import percent_range
from recoup.commands.argument_types import (
    check_choice,
    choice,
    file_to_write,
    policy,
    whole,
    wrong,
)
from recoup.commands.budget_arguments import add_option, check_spill_options, flag_of
from recoup.known_names import names

_SIZES = ("small", "real")
_ONLY = {
    "policies": "small",
    "alternatives": "small",
    "device": "small",
    "plot_of": "small",
    "timeline": "small",
    "page": "real",
    "spill": "real",
    "spill_dir": "real",
}
"""Options that apply to one size only."""
ALL, NONE = "all", "none"
_PICTURES = (".png", ".svg", ".pdf")
_PLOTS = ("time", "compute", "fragmentation", "layout", "scatter", "search")
_STEPS = {"small": 4, "real": 3}
_ROUNDS = {"small": 3, "real": 5}


def add_bench_command(commands: Any) -> None:
    """Adds `bench` to the commands of the command line."""
    parser = commands.add_parser(
        "bench",
        help="train networks in budgets, and compare with plain PyTorch",
        usage="recoup bench [options]",
        description="Each case trains a network in a budget, a fraction of its unbudgeted peak. A "
        "case whose bits differ from plain PyTorch stops the benchmark. Small: eleven narrow "
        "networks under policies, in turns with plain trainings, in this process. Real: six "
        "networks of published size, compared with other allocators, each case in its own "
        "process; a round takes about half an hour on two idle cores, and 16 GB of memory. "
        "--nets, --budgets and --rounds shorten it.",
    )
    _add_cases(parser)
    parser.add_argument(
        "--steps", type=whole(1), metavar="N", help="steps of a training (default: 4; real: 3)"
    )
    parser.add_argument(
        "--rounds",
        type=whole(1),
        metavar="N",
        help="rounds; each runs every case once (default: 3; real: 5)",
    )
    parser.add_argument(
        "--seed",
        type=whole(0, 2**63 - 1),
        default=0,
        metavar="N",
        help="seed of weights and data (default: 0)",
    )
    _add_files(parser)
    parser.set_defaults(command=_bench, fail=parser.error)


def _add_cases(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--size",
        type=choice(_SIZES),
        default="small",
        metavar="|".join(_SIZES),
        help="size of the networks (default: small)",
    )
    parser.add_argument(
        "--nets", nargs="+", default=[ALL], metavar="NET", help="networks, or `all`"
    )
    parser.add_argument(
        "--policies",
        nargs="+",
        type=policy(ALL),
        metavar="NAME",
        help="policies, or `all` (default); small only",
    )
    parser.add_argument(
        "--budgets",
        type=_budgets,
        metavar="LIST",
        help="percentages: FROM..TO:STEP, or a list such as 80,50,30 (default: 100..20:20; real: "
        "100,80,70,60,50,45,40,35,30 for gpt2 and resnet50, 100,60,40 for the others)",
    )
    add_option(
        parser,
        "spill",
        "SIZE",
        help="also train in each budget with a spill tier of SIZE, and without --budgets in 25 and "
        "20 %%; real only",
    )
    add_option(parser, "spill_dir", "DIR", help="the directory of the spill tier; real only")
    parser.add_argument(
        "--alternatives",
        nargs="+",
        type=choice([ALL, NONE, *names("bench_alternatives")]),
        metavar="NAME",
        help="alternatives to recoup, such as checkpoint-block, selective or compile-0.5, and "
        "the policies in the memory that each takes; `all` (without the slow inductor) or `none` "
        "(default); small only",
    )
    add_option(
        parser,
        "device",
        "NAME",
        help="the device: cpu (default) or a GPU such as cuda:0, with PyTorch's deterministic "
        "algorithms, because bits are compared; small only",
    )


def _add_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out",
        type=file_to_write(),
        metavar="FILE",
        help="write results as JSON after every round (real: after every case); results in FILE "
        "are not measured again",
    )
    parser.add_argument(
        "--plot",
        type=file_to_write(*_PICTURES),
        metavar="FILE",
        help="draw time ratios against budgets, one panel per network (.png, .svg or .pdf)",
    )
    parser.add_argument(
        "--plot-of",
        type=choice(_PLOTS),
        metavar="NAME",
        help=f"what the plot shows: {', '.join(_PLOTS)} (default: time); small only",
    )
    parser.add_argument(
        "--timeline",
        type=file_to_write(*_PICTURES),
        metavar="FILE",
        help="draw the simulated memory, ops, replays and evictions of each case over one step, "
        "instead of running it; small only",
    )
    parser.add_argument(
        "--page",
        type=file_to_write(),
        metavar="FILE",
        help="write the tables as Markdown; real only",
    )


def _bench(options: argparse.Namespace) -> int:
    if importlib.util.find_spec("transformers") is None:
        options.fail("recoup bench needs transformers: pip install 'recoup[bench]'")
    _resolve(options)
    from recoup.commands.bench.command import run

    return run(options)


def _resolve(options: argparse.Namespace) -> None:
    """Fills in the defaults of the size, and rejects invalid combinations."""
    given, fail = vars(options), options.fail
    for name, only in _ONLY.items():
        if given[name] is not None and only != options.size:
            fail(f"{flag_of(name)} needs --size {only}; got --size {options.size}")
    for name, defaults in (("steps", _STEPS), ("rounds", _ROUNDS)):
        if given[name] is None:
            given[name] = defaults[options.size]
    check_spill_options(options)
    for name in ("plot", "timeline"):
        if given[name] is not None and importlib.util.find_spec("matplotlib") is None:
            fail(f"--{name} needs matplotlib: pip install 'recoup[bench]'")
    for name in (ALL, NONE):
        if name in (options.alternatives or []) and len(options.alternatives) > 1:
            fail(
                f"--alternatives {name} cannot be combined with other alternatives: leave them out"
            )
    known = names("bench_nets" if options.size == "small" else "bench_real_nets")
    for net in options.nets:
        try:
            check_choice(net, [*known, ALL])
        except ValueError as error:
            fail(f"--nets {error}")


def _budgets(text: str) -> str:
    try:
        parse_fractions(text)
    except ValueError as error:
        raise wrong(f": {error}") from None
    return text


def parse_fractions(text: str) -> list[float]:
    """Returns fractions for percentages. Raises ValueError with the allowed values."""
    percents: list[float] = [*(percent_range(text) or [])]
    if not percents:
        try:
            percents = [float(part.strip().removesuffix("%")) for part in text.split(",")]
        except ValueError:
            raise ValueError(
                f"budgets must be percentages, as FROM..TO:STEP or as a list; got {text!r}"
            ) from None
    if not all(0 < percent <= 1000 for percent in percents):
        raise ValueError(f"budgets must be percentages above 0 and at most 1000; got {text!r}")
    return [percent / 100 for percent in dict.fromkeys(percents)]


def chosen(asked: list[str], known: list[str]) -> list[str]:
    """The names in `asked`, without repetitions; `all` means all known names."""
    return known if ALL in asked else list(dict.fromkeys(asked))
