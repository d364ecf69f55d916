"""What `make demo` runs: both examples in less and less memory, beside plain PyTorch.

Each row trains in a share of the memory that the training takes by itself, in turns with plain
runs, and compares every bit. Exits with 1 when a bit differs.
"""

import argparse
import contextlib
import gc
import statistics
from dataclasses import dataclass
from types import ModuleType

import char_gpt
import digits_resnet
from rich.console import Console
from rich.table import Table

import recoup

EXAMPLES = (("char_gpt.py", char_gpt), ("digits_resnet.py", digits_resnet))
SHARES = (1.0, 0.7, 0.5, 0.3)
UNREACHED = 16 << 30
RESOLUTION = 0.02  # to which the smallest budget that would do is searched, as a share of the peak


@dataclass
class Row:
    share: float
    budget_bytes: int
    peak_bytes: int = 0
    time_ratio: float = 0.0
    replays: int = 0  # a step
    bits_equal: bool = True
    enough_bytes: int | None = None  # set when the budget was too small


def step_seconds(trained: char_gpt.Trained | digits_resnet.Trained) -> float:
    """The median step; the first one, which also warms up, is left out."""
    return statistics.median(trained.seconds[1:])


class Demo:
    """One example, trained again and again."""

    def __init__(self, example: ModuleType, steps: int, pairs: int, policy: str) -> None:
        self.example, self.steps, self.pairs, self.policy = example, steps, pairs, policy
        self.plain = self.train_plainly()
        self.peak_bytes = self.train_in(UNREACHED, steps)[1].peak_bytes

    def train_plainly(self) -> char_gpt.Trained:
        return self.example.train(self.steps, seed=0, quiet=True)

    def train_in(self, budget: int, steps: int) -> tuple[char_gpt.Trained, recoup.Stats]:
        run = None
        try:
            with recoup.budget(min(budget, UNREACHED), policy=self.policy) as run:
                trained = self.example.train(steps, seed=0, quiet=True)
            return trained, run.stats()
        except recoup.OutOfBudgetError as error:
            if run is not None:
                with contextlib.suppress(RuntimeError):  # the scope is over already
                    run.finish(UNREACHED)
            raise error.with_traceback(None) from None  # the traceback holds the training's tensors

    def row(self, share: float, next_larger: int) -> Row:
        row = Row(share, int(share * self.peak_bytes))
        ratios = []
        try:
            for _ in range(self.pairs):
                plain = self.train_plainly()
                trained, stats = self.train_in(row.budget_bytes, self.steps)
                ratios.append(step_seconds(trained) / step_seconds(plain))
                row.bits_equal &= self.example.same_bits(trained, plain)
                row.peak_bytes = max(row.peak_bytes, stats.peak_bytes)
                row.replays = round(stats.replays / self.steps)
            row.time_ratio = statistics.median(ratios)
        except recoup.OutOfBudgetError:
            row.enough_bytes = self.least_budget(row.budget_bytes, next_larger)
        gc.collect()
        return row

    def least_budget(self, too_small: int, enough: int) -> int:
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


def add_to_table(table: Table, row: Row) -> None:
    share, budget = f"{row.share:.0%}", megabytes(row.budget_bytes)
    if row.enough_bytes is not None:
        note = f"infeasible: {megabytes(row.enough_bytes)} would do"
        table.add_row(share, budget, "-", "-", "-", note)
        return
    bits = "[green]bits equal[/]" if row.bits_equal else "[bold red]BITS DIFFER[/]"
    ratio, replays = f"{row.time_ratio:.2f}x", f"{row.replays:,}"
    table.add_row(share, budget, megabytes(row.peak_bytes), ratio, replays, bits)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=6, help="of each training, at least 2")
    parser.add_argument("--pairs", type=int, default=3, help="of a plain and a budgeted training")
    parser.add_argument("--policy", default="dtr-eq", help="see `recoup policies`")
    args = parser.parse_args()
    if args.steps < 2 or args.pairs < 1:
        parser.error("it takes at least 2 steps and 1 pair")
    console = Console()
    all_equal = True
    for name, example in EXAMPLES:
        with console.status(f"{name}: plain PyTorch") as status:
            demo = Demo(example, args.steps, args.pairs, args.policy)
            plain = (
                f"{step_seconds(demo.plain):.2f} s a step, {megabytes(demo.peak_bytes)} at its peak"
            )
            table = Table(title=f"{name}: plain PyTorch takes {plain}", title_justify="left")
            for column in ("budget", "", "peak", "time", "replays a step"):
                table.add_column(column, justify="right")
            table.add_column("against plain PyTorch")
            next_larger = 2 * demo.peak_bytes
            for share in SHARES:
                status.update(f"{name}: a budget of {share:.0%} of the peak")
                row = demo.row(share, next_larger)
                next_larger = row.enough_bytes or row.budget_bytes
                all_equal &= row.bits_equal
                add_to_table(table, row)
        console.print(table)
    if not all_equal:
        console.print("[bold red]a bit differs: please report this[/]")
    return 0 if all_equal else 1


if __name__ == "__main__":
    raise SystemExit(main())
