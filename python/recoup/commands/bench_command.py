"""`recoup bench`: networks under policies and budgets, on real tensors."""

import argparse
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress

import recoup
from recoup.bench.rounds import BitsDifferError
from recoup.files import check_writable
from recoup.sizes import percent_range
from recoup.tables import plain_table, print_table


def add_bench_command(commands: Any) -> None:
    """Adds the command to the parser's subparsers."""
    parser = commands.add_parser(
        "bench",
        help="train networks under policies and budgets, and compare",
        description="Each case trains a network in a budget, in turns with plain trainings, in "
        "this process. Budgets are shares of the network's unbudgeted peak. A case whose bits "
        "differ stops it.",
    )
    parser.add_argument("--nets", nargs="+", default=["all"], metavar="NET", help="or `all`")
    parser.add_argument(
        "--policies", nargs="+", default=["all"], metavar="NAME", help="or `all` (the default)"
    )
    parser.add_argument(
        "--budgets",
        default="100..20:20",
        help="percents: FROM..TO:STEP, or a list such as 80,50,30 (default: 100..20:20)",
    )
    parser.add_argument(
        "--alternatives",
        nargs="+",
        default=["none"],
        metavar="NAME",
        help="what users would pick instead, such as checkpoint-block, selective or compile-0.5, "
        "and the policies in the memory that each takes; `all` (without the slow inductor) or "
        "`none` (the default)",
    )
    parser.add_argument(
        "--device",
        default="cpu",
        help="where to train: cpu (the default), or a GPU such as cuda:0, with PyTorch's "
        "deterministic algorithms, since bits are compared",
    )
    parser.add_argument("--steps", type=int, default=4, help="of a training (default: 4)")
    parser.add_argument(
        "--rounds", type=int, default=3, help="in each, every case runs once (default: 3)"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="results as JSON, written after every round; what it has is not run again",
    )
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help="draw time ratios over memory ratios, a panel a net (.png, .svg or .pdf)",
    )
    parser.add_argument(
        "--plot-of",
        default="time",
        choices=["time", "compute", "fragmentation", "layout", "scatter", "search"],
        help="what the plot shows (default: time)",
    )
    parser.add_argument(
        "--timeline",
        type=Path,
        metavar="FILE",
        help="run no case, but draw the memory, ops, replays and evictions of each over one step, "
        "as simulated",
    )
    parser.set_defaults(command=_bench, fail=parser.error)


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


def _bench(options: argparse.Namespace) -> int:
    if importlib.util.find_spec("transformers") is None:
        options.fail("recoup bench needs transformers: pip install 'recoup[bench]'")
    for name in ("steps", "rounds"):
        if vars(options)[name] < 1:
            options.fail(f"--{name} must be 1 or more; got {vars(options)[name]}")
    try:
        for name in ("plot", "timeline"):
            _check_picture(name, vars(options)[name])
        if options.out is not None:
            check_writable(options.out)
        plan = _plan(options)
        if plan.device != "cpu":
            _prepare_gpu(options)
        if options.timeline is not None:
            _draw_timeline(plan, options)
        else:
            _run(plan, options)
    except (OSError, RuntimeError, ValueError, BitsDifferError) as error:
        options.fail(str(error))
    except KeyboardInterrupt:
        kept = ""
        if options.out is not None and options.out.exists():
            kept = f"; {options.out} has what is done, and goes on from there"
        print(f"recoup bench: interrupted{kept}", file=sys.stderr)
        return 130
    return 0


def _plan(options: argparse.Namespace) -> Any:
    from recoup.bench import nets, runner

    policies = [policy.name for policy in recoup.policies()]
    return runner.Plan(
        nets=_chosen("net", options.nets, [net.name for net in nets.NETS]),
        policies=_chosen("policy", options.policies, policies),
        shares=parse_shares(options.budgets),
        steps=options.steps,
        rounds=options.rounds,
        seed=options.seed,
        device=str(recoup.gpus.parse_device(options.device)),
    )


def _prepare_gpu(options: argparse.Namespace) -> None:
    if options.alternatives != ["none"]:
        raise ValueError("alternatives are measured on the CPU: leave out --alternatives")
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.deterministic = True


def _run(plan: Any, options: argparse.Namespace) -> None:
    from recoup.bench import against, plots, runner
    from recoup.bench.alternatives import alternatives_named
    from recoup.commands.bench_comparison import print_comparison

    alternatives = alternatives_named(options.alternatives)
    results = runner.open_results(options.out, plan)
    with _progress() as progress:
        rounds = plan.rounds * len(list(plan.cases()))
        task = progress.add_task("", total=rounds + against.count(alternatives, plan))
        for what in runner.run_all(plan, results, options.out):
            progress.update(task, completed=results.rounds_done(plan), description=what)
        progress.update(task, completed=rounds)
        for what in against.run_alternatives(alternatives, plan, results, options.out):
            progress.update(task, advance=1, description=what)
    _print_tables(plan, results)
    print_comparison(alternatives, plan, results)
    if options.plot is not None:
        plots.draw(plan, results, options.plot, options.plot_of)


def _draw_timeline(plan: Any, options: argparse.Namespace) -> None:
    from recoup.bench import timelines

    if len(list(plan.cases())) > timelines.MOST:
        raise ValueError(
            f"--timeline draws at most {timelines.MOST} cases, not {len(list(plan.cases()))}: "
            "choose --nets, --policies and --budgets"
        )
    with _progress() as progress:
        task = progress.add_task("", total=len(plan.nets))
        for what in timelines.draw(plan, options.timeline):
            progress.update(task, advance=1, description=what)


def _progress() -> Progress:
    return Progress(
        *Progress.get_default_columns(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )


def _check_picture(option: str, path: Path | None) -> None:
    """Before hours are spent. Raises ValueError or OSError when it could not be drawn."""
    if path is None:
        return
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError(f"--{option} needs matplotlib: pip install 'recoup[bench]'")
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise ValueError(f"--{option} draws .png, .svg or .pdf; got {path}")
    check_writable(path)


def _chosen(kind: str, asked: list[str], known: list[str]) -> list[str]:
    if "all" in asked:
        return known
    for name in asked:
        if name not in known:
            raise ValueError(f"unknown {kind} {name!r}; there are {', '.join(known)}")
    return list(dict.fromkeys(asked))


def _print_tables(plan: Any, results: Any) -> None:
    least = {(row["net"], row["policy"]): row["budget_bytes"] for row in results.least}
    for net in plan.nets:
        peak = results.peaks[net]
        whole = results.whole[net]
        unevicted = f"{whole / peak:.0%} of it" if whole is not None else "more than twice that"
        print(
            f"{net}: unbudgeted peak {peak / 1e6:.1f} MB; nothing is evicted in {unevicted} or more"
        )
        times, layouts = plain_table("policy", *_TIMES), plain_table("policy", *_LAYOUTS)
        for row in results.rows_of(plan, net):
            bytes_least = least[net, row["policy"]]
            share = "-" if bytes_least is None else f"{bytes_least / peak:.0%}"
            budget = f"{100 * row['share']:g}%"
            times.add_row(row["policy"], share, budget, *_time_cells(row))
            if "stats" in row:
                layouts.add_row(row["policy"], budget, *_layout_cells(row))
        for table in times, layouts:
            if table.rows:
                print_table(table)
                print()


_TIMES = (
    "least", "budget", "time", "compute", "search", "books", "moves", "alloc", "replays", "depth",
    "chain", "peak",
)  # fmt: skip
_LAYOUTS = (
    "budget", "evictions", "moved", "layout cost", "time", "scatter", "fragmented", "without",
)  # fmt: skip


def _time_cells(row: dict[str, Any]) -> list[str]:
    if "stats" not in row:
        return ["slow" if row["status"] == "too slow" else "-"]
    stats = row["stats"]
    return [
        f"{row['time_ratio']:.2f}x",
        f"{row['compute_overhead']:.2f}x",
        f"{row['search_share']:.1%}",
        f"{row['bookkeeping_share']:.1%}",
        f"{row['move_share']:.1%}",
        f"{row['allocator_share']:.1%}",
        f"{stats['replays']:,}",
        f"{stats['replay_depth_max']:,}",
        f"{stats['replay_chain_max']:,}",
        f"{stats['peak_bytes'] / 1e6:.1f} MB",
    ]


def _layout_cells(row: dict[str, Any]) -> list[str]:
    stats, layout = row["stats"], row["layout"]
    return [
        f"{stats['evictions']:,}",
        f"{stats['moved_bytes'] / 1e6:.1f} MB",
        "-" if layout["cost"] is None else f"{layout['cost']:.1%}",
        "-" if layout["time_ratio"] is None else f"{layout['time_ratio']:.2f}x",
        f"{layout['scatter']:.0%}",
        f"{row['fragmentation']:.1%}",
        f"{layout['fragmentation_without']:.1%}",
    ]
