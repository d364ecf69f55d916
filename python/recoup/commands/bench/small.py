"""`recoup bench --size small`: progress bar, tables and plots."""

import argparse
import os
import sys
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress

from recoup import gpus
from recoup._reporting.tables import plain_table, print_table
from recoup.commands.bench.arguments import ALL, NONE, chosen, parse_shares
from recoup.known_names import names, policy_names


def run(options: argparse.Namespace) -> None:
    """Runs the cases. Raises ValueError for unknown names, BitsDifferError."""
    plan = _plan(options)
    if plan.device != "cpu":
        _prepare_gpu(options)
    if options.timeline is not None:
        _draw_timeline(plan, options)
    else:
        _run(plan, options)


def _plan(options: argparse.Namespace) -> Any:
    from recoup.bench import runner

    return runner.Plan(
        nets=chosen(options.nets, names("bench_nets")),
        policies=chosen(options.policies or [ALL], policy_names()),
        shares=parse_shares(options.budgets or "100..20:20"),
        steps=options.steps,
        rounds=options.rounds,
        seed=options.seed,
        device=str(gpus.parse_device(options.device or "cpu")),
    )


def _prepare_gpu(options: argparse.Namespace) -> None:
    if options.alternatives not in (None, [NONE]):
        raise ValueError(
            "--alternatives are measured on the CPU only: leave out --alternatives or --device"
        )
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.deterministic = True


def _run(plan: Any, options: argparse.Namespace) -> None:
    from recoup.bench import against, plots, runner
    from recoup.bench.alternatives import alternatives_named
    from recoup.commands.bench.comparison import print_comparison

    alternatives = alternatives_named(options.alternatives or [NONE])
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
        plots.draw(plan, results, options.plot, options.plot_of or "time")


def _draw_timeline(plan: Any, options: argparse.Namespace) -> None:
    from recoup.bench import timelines

    if len(list(plan.cases())) > timelines.MOST:
        raise ValueError(
            f"--timeline draws at most {timelines.MOST} cases; got {len(list(plan.cases()))}: "
            "choose fewer with --nets, --policies and --budgets"
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


def _print_tables(plan: Any, results: Any) -> None:
    least = {(row["net"], row["policy"]): row["budget_bytes"] for row in results.least}
    for net in plan.nets:
        peak = results.peaks[net]
        whole = results.whole[net]
        unevicted = (
            f"{whole / peak:.0%} of that peak" if whole is not None else "more than twice that peak"
        )
        print(
            f"{net}: unbudgeted peak {peak / 1e6:.1f} MB; least budget without evictions: "
            f"{unevicted}"
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
    "least", "budget", "time", "compute", "search", "reclaim", "moves", "alloc", "replays", "depth",
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
