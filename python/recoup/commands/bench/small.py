"""`recoup bench --size small`: progress bar, tables and plots."""

import argparse
import os
import sys
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress

from recoup import gpus
from recoup.bench.harness.tables import cells_of, print_cells
from recoup.commands.bench.arguments import ALL, NONE, chosen, parse_fractions
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
        fractions=parse_fractions(options.budgets or "100..20:20"),
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
        times, layouts = [], []
        for row in results.rows_of(plan, net):
            bytes_least = least[net, row["policy"]]
            fraction = "-" if bytes_least is None else f"{bytes_least / peak:.0%}"
            budget = f"{100 * row['fraction']:g}%"
            if "stats" in row:
                times.append((row["policy"], fraction, budget, *cells_of(_TIMES, row)))
                layouts.append((row["policy"], budget, *cells_of(_LAYOUTS, row)))
            else:
                slow = "slow" if row["status"] == "too slow" else "-"
                times.append((row["policy"], fraction, budget, slow))
        for head, columns, rows in (
            (("policy", "least", "budget"), _TIMES, times),
            (("policy", "budget"), _LAYOUTS, layouts),
        ):
            if rows:
                print_cells("", (*head, *columns), rows)
                print()


_TIMES = {
    "time": "{time_ratio:.2f}x",
    "compute": "{compute_overhead:.2f}x",
    "search": "{search_fraction:.1%}",
    "reclaim": "{bookkeeping_fraction:.1%}",
    "moves": "{move_fraction:.1%}",
    "alloc": "{allocator_fraction:.1%}",
    "replays": "{stats[replays]:,}",
    "depth": "{stats[replay_depth_max]:,}",
    "chain": "{stats[replay_chain_max]:,}",
    "peak": "{stats[peak_bytes]:.1fMB}",
}
_LAYOUTS = {
    "evictions": "{stats[evictions]:,}",
    "moved": "{stats[moved_bytes]:.1fMB}",
    "layout cost": "{layout[cost]:.1%}",
    "time": "{layout[time_ratio]:.2f}x",
    "scatter": "{layout[scatter]:.0%}",
    "fragmented": "{fragmentation:.1%}",
    "without": "{layout[fragmentation_without]:.1%}",
}
