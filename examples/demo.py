"""Trains the examples in less and less memory and compares them with plain PyTorch: `make demo`.

Each row trains in a fraction of the memory that training takes by itself, and compares every bit:
two nets that alternate with plain runs, then a GPT-2 in less memory than training keeps, with a
file on a disk. Exits with 1 if a bit differs.
"""

import argparse
import contextlib
import gc
import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# OpenMP's threads sleep while they wait: if other programs use the machine, spinning makes small
# kernels a thousand times slower. Must be set before torch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import char_gpt
import digits_resnet
import finetune_gpt2
import torch
from rich.console import Console
from rich.table import Table
from trained import Trained, first_difference

import recoup
from recoup.run import free_bytes

EXAMPLES = (("char_gpt.py", char_gpt.train), ("digits_resnet.py", digits_resnet.train))
FRACTIONS = (1.0, 0.7, 0.5, 0.3)
SPILL_FRACTIONS = (0.5, 0.25)
RESOLUTION = 0.02  # of the search for a budget that is enough, as a fraction of the peak
PATIENCE = 2.0  # limit of the replay cost of one op's arguments, in plain steps
SEED = 0
PIPE_WIDTH = 110  # columns, if the output is no terminal


@dataclass
class Row:
    """The result of one budget. If it is too small, `reason` is set and other results are empty."""

    fraction: float
    budget_bytes: int
    peak_bytes: int = 0
    time_ratio: float = 0.0
    replays: int = 0  # a step
    difference: str | None = None  # the first tensor with another bit
    reason: str | None = None


def step_seconds(trained: Trained) -> float:
    """Median time of a step without the first, which warms up."""
    return statistics.median(trained.seconds[1:])


def reason_of(error: Any) -> str:
    if error.asked_bytes == 0:
        return f"replays for {error.op} take over {PATIENCE:.0f} steps"
    return f"no {megabytes(error.asked_bytes)} for {error.op}"


class Demo:
    """One example, trained repeatedly."""

    def __init__(
        self, train: Callable[[int, int, bool], Trained], steps: int, pairs: int, policy: str
    ) -> None:
        self.train, self.steps, self.pairs, self.policy = train, steps, pairs, policy
        # A budget far above its needs, so that its peak is its unbudgeted peak.
        self.unreached = free_bytes(torch.device("cpu"))
        self.plain = self.train_plainly()
        self.peak_bytes = self.train_in(self.unreached, steps)[1].peak_bytes

    def train_plainly(self) -> Trained:
        return self.train(self.steps, SEED, True)

    def train_in(self, budget: int, steps: int) -> tuple[Trained, recoup.Stats]:
        run = None
        try:
            with recoup.budget(
                budget, policy=self.policy, options=recoup.Options(max_replay_ratio=PATIENCE)
            ) as run:
                trained = self.train(steps, SEED, True)
            return trained, run.stats()
        except recoup.OutOfBudgetError as error:
            if run is not None:
                with contextlib.suppress(RuntimeError):  # the scope has ended already
                    run.resume(self.unreached)
            raise error.with_traceback(None) from None  # the traceback holds the tensors
        finally:
            gc.collect()

    def row(self, fraction: float, next_larger: int) -> Row:
        """Measures a budget; `next_larger`: a budget that is known to be enough."""
        row = Row(fraction, int(fraction * self.peak_bytes))
        ratios = []
        try:
            for _ in range(self.pairs):
                trained, stats = self.train_in(row.budget_bytes, self.steps)
                plain = self.train_plainly()
                ratios.append(step_seconds(trained) / step_seconds(plain))
                row.difference = row.difference or first_difference(trained, plain)
                row.peak_bytes = max(row.peak_bytes, stats.peak_bytes)
                row.replays = round(stats.replays / self.steps)
            row.time_ratio = statistics.median(ratios)
        except recoup.OutOfBudgetError as error:
            enough = self.enough(row.budget_bytes, next_larger)
            percent = f"{enough / self.peak_bytes:.0%}"
            row.reason = f"{reason_of(error)}; {megabytes(enough)} ({percent}) would do"
        return row

    def enough(self, too_small: int, enough: int) -> int:
        """A budget that the first steps fit in, by bisection."""
        while enough - too_small > RESOLUTION * self.peak_bytes:
            middle = (too_small + enough) // 2
            try:
                self.train_in(middle, min(3, self.steps))
                enough = middle
            except recoup.OutOfBudgetError:
                too_small = middle
        return enough


def megabytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB"


def new_table(title: str, *work: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for column in ("budget", "", "peak", "time", *(work or ("replays a step",))):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("against plain PyTorch")
    return table


def add_to_table(table: Table, row: Row) -> None:
    cells = [f"{row.fraction:.0%}", megabytes(row.budget_bytes)]
    if row.reason is not None:
        table.add_row(*cells, "-", "-", "-", f"[yellow]does not fit:[/] {row.reason}")
        return
    cells += [megabytes(row.peak_bytes), f"{row.time_ratio:.2f}x", f"{row.replays:,}"]
    table.add_row(*cells, verdict(row.difference))


def verdict(difference: str | None) -> str:
    return (
        "[green]bits equal[/]"
        if difference is None
        else f"[bold red]BITS DIFFER[/] in {difference}"
    )


def console_of() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=PIPE_WIDTH)


def show(console: Console, status: Any, text: str) -> None:
    status.update(text)
    if not console.is_terminal:
        print(f"{text} ...", flush=True)


def demo_example(
    console: Console, name: str, train: Callable[[int, int, bool], Trained], args: Any
) -> int:
    """Prints the example's table; returns the number of rows with a different bit."""
    with console.status(f"{name}: plain PyTorch") as status:
        demo = Demo(train, args.steps, args.pairs, args.policy)
        seconds = f"{step_seconds(demo.plain):.2f} s a step"
        table = new_table(f"{name}: plain PyTorch takes {megabytes(demo.peak_bytes)}, {seconds}")
        next_larger = demo.unreached
        differences = 0
        for fraction in FRACTIONS:
            show(console, status, f"{name}: a budget of {fraction:.0%} of the peak")
            row = demo.row(fraction, next_larger)
            if row.reason is None:
                next_larger = row.budget_bytes
            differences += row.difference is not None
            add_to_table(table, row)
    console.print(table)
    return differences


def refusal() -> str | None:
    """Why no spill file is possible; None: it is possible."""
    try:
        with recoup.budget("64MiB", spill=finetune_gpt2.SPILL):
            return None
    except (RuntimeError, ValueError, OSError) as error:
        return str(error)


def demo_spilling(console: Console, steps: int) -> int:
    """Prints the table of a net whose parameters, gradients and optimizer state alone exceed the
    budget; returns the number of rows with a different bit. Shows no spinner: while a second
    Python thread runs, tensors made before a scope cannot be brought into its spill tier."""
    name, size = "finetune_gpt2.py", finetune_gpt2.SMALL
    reason = refusal()
    if reason is not None:
        console.print(f"{name} is left out: {reason}", markup=False)
        return 0
    print(f"{name}: plain PyTorch ...", flush=True)
    plain = finetune_gpt2.train_plainly(size, steps, SEED)
    title = (
        f"{name}: plain PyTorch takes {megabytes(plain.peak_bytes)}, {plain.seconds:.2f} s a step"
    )
    table = new_table(title, "written a step", "read a step")
    table.caption = (
        f"{megabytes(plain.kept_bytes)} of it are parameters, gradients and AdamW's state: "
        "a file on a disk takes what does not fit"
    )
    table.caption_justify = "left"
    differences = 0
    for fraction in SPILL_FRACTIONS:
        print(f"{name}: a budget of {fraction:.0%} of the peak ...", flush=True)
        budget = int(fraction * plain.peak_bytes)
        found = finetune_gpt2.train_in(budget, plain, size, steps, SEED)
        sizes = (budget, found.stats.peak_bytes)
        copied = (found.stats.spilled_bytes // steps, found.stats.fetched_bytes // steps)
        table.add_row(
            f"{fraction:.0%}",
            *map(megabytes, sizes),
            f"{found.time_ratio:.2f}x",
            *map(megabytes, copied),
            verdict(found.difference),
        )
        differences += found.difference is not None
    console.print(table)
    return differences


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=5, help="of each training, at least 2")
    parser.add_argument("--pairs", type=int, default=2, help="of a budgeted and a plain training")
    parser.add_argument("--policy", default="dtr", help="see `recoup policies`")
    args = parser.parse_args()
    if args.steps < 2 or args.pairs < 1:
        parser.error("it takes at least 2 steps and 1 pair")
    console = console_of()
    differences = sum(demo_example(console, name, train, args) for name, train in EXAMPLES)
    differences += demo_spilling(console, args.steps)
    if differences:
        console.print("[bold red]a bit differs: please report this[/]")
    return 1 if differences else 0


if __name__ == "__main__":
    raise SystemExit(main())
