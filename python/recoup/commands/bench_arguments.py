"""The arguments of `recoup bench`."""

import argparse
import importlib.util
from pathlib import Path

from recoup.files import check_writable
from recoup.sizes import percent_range

_SIZES = ("small", "real")
_ONLY = {
    "policies": "small",
    "alternatives": "small",
    "device": "small",
    "plot_of": "small",
    "timeline": "small",
    "page": "real",
}
"""Options that say something of one size alone."""
_STEPS = {"small": 4, "real": 3}
_ROUNDS = {"small": 3, "real": 5}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What is trained, then the files that are written."""
    parser.add_argument(
        "--size", choices=_SIZES, default="small", help="of the networks (default: small)"
    )
    parser.add_argument("--nets", nargs="+", default=["all"], metavar="NET", help="or `all`")
    parser.add_argument(
        "--policies", nargs="+", metavar="NAME", help="or `all` (the default); small"
    )
    parser.add_argument(
        "--budgets",
        help="percents: FROM..TO:STEP, or a list such as 80,50,30 (default: 100..20:20; real: "
        "100,80,70,60,50,45,40,35,30 for gpt2 and resnet50, 100,60,40 for the others)",
    )
    parser.add_argument(
        "--alternatives",
        nargs="+",
        metavar="NAME",
        help="what users would pick instead, such as checkpoint-block, selective or compile-0.5, "
        "and the policies in the memory that each takes; `all` (without the slow inductor) or "
        "`none` (the default); small",
    )
    parser.add_argument(
        "--device",
        help="where to train: cpu (the default), or a GPU such as cuda:0, with PyTorch's "
        "deterministic algorithms, since bits are compared; small",
    )
    parser.add_argument("--steps", type=int, help="of a training (default: 4; real: 3)")
    parser.add_argument(
        "--rounds", type=int, help="in each, every case runs once (default: 3; real: 5)"
    )
    parser.add_argument("--seed", type=int, default=0)
    _add_files(parser)


def _add_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="results as JSON, written after every round (real: after every case); what it has is "
        "not run again",
    )
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help="draw time ratios against budgets, a panel a net (.png, .svg or .pdf)",
    )
    parser.add_argument(
        "--plot-of",
        choices=["time", "compute", "fragmentation", "layout", "scatter", "search"],
        help="what the plot shows (default: time); small",
    )
    parser.add_argument(
        "--timeline",
        type=Path,
        metavar="FILE",
        help="run no case, but draw the memory, ops, replays and evictions of each over one step, "
        "as simulated; small",
    )
    parser.add_argument(
        "--page", type=Path, metavar="FILE", help="write the tables as Markdown; real"
    )


def settle(options: argparse.Namespace) -> None:
    """Fills in the size's defaults. Raises ValueError or OSError for what cannot be done."""
    given = vars(options)
    for name, size in _ONLY.items():
        if given[name] is not None and size != options.size:
            option = f"--{name.replace('_', '-')}"
            raise ValueError(f"{option} goes with --size {size}, not with --size {options.size}")
    for name, defaults in (("steps", _STEPS), ("rounds", _ROUNDS)):
        if given[name] is None:
            given[name] = defaults[options.size]
        if given[name] < 1:
            raise ValueError(f"--{name} must be 1 or more; got {given[name]}")
    for name in ("plot", "timeline"):
        _check_picture(name, given[name])
    for name in ("out", "page"):
        if given[name] is not None:
            check_writable(given[name])


def _check_picture(option: str, path: Path | None) -> None:
    """Before hours are spent. Raises ValueError or OSError when it could not be drawn."""
    if path is None:
        return
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError(f"--{option} needs matplotlib: pip install 'recoup[bench]'")
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise ValueError(f"--{option} draws .png, .svg or .pdf; got {path}")
    check_writable(path)


def parse_shares(text: str) -> list[float]:
    """Of percents. Raises ValueError that says what is allowed."""
    percents: list[float] = [*(percent_range(text) or [])]
    if not percents:
        try:
            percents = [float(part.strip().removesuffix("%")) for part in text.split(",")]
        except ValueError:
            raise ValueError(
                f"budgets are percents, FROM..TO:STEP or a list; got {text!r}"
            ) from None
    if not all(0 < percent <= 1000 for percent in percents):
        raise ValueError(f"budgets are percents above 0 and up to 1000; got {text!r}")
    return [percent / 100 for percent in dict.fromkeys(percents)]


def chosen(kind: str, asked: list[str], known: list[str]) -> list[str]:
    """`all` are those that are known. Raises ValueError that lists them."""
    if "all" in asked:
        return known
    for name in asked:
        if name not in known:
            raise ValueError(f"unknown {kind} {name!r}; there are {', '.join(known)}")
    return list(dict.fromkeys(asked))
