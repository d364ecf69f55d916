"""The least budget that a training runs in, beside what no replay order can beat.

    python bench/least.py --nets char_gpt resnet --scan 20

floor   the single-op floor: the leaves that are alive and all that one op reads and writes, for the
        op where that is most. No way of recomputing does with less.
G       the same, and with it what backward and the optimizer made or wrote and is still held
        (gradients, optimizer state, parameters): recomputing it would take all of the step.
least   found by search in steps of 1 % of the unbudgeted peak. A budget is feasible when the
        training ends without OutOfBudgetError and its ops and replays together cost at most 10
        times what its ops cost. The search halves the interval, then tries --scan steps above what
        it found, since nothing says that a larger budget must do: the ones that fail are holes.

Floor and G are taken from one training that is never short of memory, by looking at the tensors
around every op; what a kernel held beside its results counts too. Ops are priced by their bytes
unless --cost-model measured is given, so that a search gives the same answer again.
"""

from dataclasses import dataclass
from typing import Any

import torch
from measure import (
    UNREACHED,
    Program,
    megabytes,
    parser_of,
    print_table,
    program_named,
    say,
    try_in,
    write_result,
)
from patience import TooSlowError, train_in
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import recoup


@dataclass
class Known:
    """A storage that is alive."""

    ref: StorageWeakRef
    size: int
    is_leaf: bool
    since_backward: bool


# In-place ops that read nothing of what they replace.
OVERWRITING = {"bernoulli_", "copy_", "fill_", "normal_", "random_", "uniform_", "zero_"}


class Floors(TorchDispatchMode):
    """Looks at every op of a plain training and at the storages that are alive around it.

    A leaf is what recoup has no op for: made outside, by `torch.tensor`, or by `empty` and not
    overwritten. What is made or written without grad mode is the work of backward or of the
    optimizer.
    """

    def __init__(self, run: recoup.Run) -> None:
        super().__init__()
        self.run = run
        self.op_count = 0
        self.known: dict[int, Known] = {}
        self.floor_bytes = 0
        self.g_bytes = 0

    def storages(self, value: Any, *, leaf: bool) -> dict[int, Known]:
        found = {}
        for tensor in tree_leaves(value):
            if isinstance(tensor, Tensor) and tensor.device.type == "cpu":
                storage = tensor.untyped_storage()
                # An address is not used again while there is a weak reference to what was there.
                key = storage._cdata
                if key not in self.known:
                    ref = StorageWeakRef(storage)
                    self.known[key] = Known(ref, storage.nbytes(), leaf, since_backward=False)
                found[key] = self.known[key]
        return found

    def note_writes(self, func: Any, args: Any, kwargs: dict[str, Any]) -> None:
        schema = func._schema
        named = dict(zip((argument.name for argument in schema.arguments), args, strict=False))
        for argument in schema.arguments:
            if argument.alias_info is not None and argument.alias_info.is_write:
                value = {**named, **kwargs}.get(argument.name)
                for known in self.storages(value, leaf=True).values():
                    known.since_backward |= not torch.is_grad_enabled()
                    if func.overloadpacket.__name__ in OVERWRITING:
                        known.is_leaf = False

    def workspace(self) -> int:
        """Of the op that has just run; none if it was only a view."""
        stats = self.run.stats()
        is_new, self.op_count = stats.op_count > self.op_count, stats.op_count
        return stats.workspace_bytes if is_new else 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for key in [key for key, known in self.known.items() if known.ref.expired()]:
            del self.known[key]
        touched = self.storages((args, kwargs), leaf=True)
        out = func(*args, **(kwargs or {}))
        self.note_writes(func, args, kwargs or {})
        made = self.storages(out, leaf="empty" in func.name())
        for key in made.keys() - touched.keys():
            made[key].since_backward = not torch.is_grad_enabled()
        touched |= made
        floor = g = self.workspace()
        for key, known in self.known.items():
            if known.is_leaf or key in touched:
                floor += known.size
            if known.is_leaf or key in touched or known.since_backward:
                g += known.size
        self.floor_bytes = max(self.floor_bytes, floor)
        self.g_bytes = max(self.g_bytes, g)
        return out


def floors_of(program: Program, steps: int) -> Floors:
    with recoup.budget(UNREACHED) as run, Floors(run) as floors:
        program.train(steps)
    return floors


@dataclass
class Search:
    program: Program
    steps: int
    plain: recoup.Stats  # of a training that is never short of memory
    options: dict[str, Any]

    def feasible(self, percent: int) -> bool:
        budget = self.plain.peak_bytes * percent // 100
        try:
            train_in(
                budget, self.plain.op_ns, lambda: self.program.train(self.steps), **self.options
            )
        except (TooSlowError, recoup.OutOfBudgetError):
            return False
        return True

    def least(self) -> int:
        """In percent of the peak, if a larger budget is never worse."""
        too_small, enough = 0, 100
        while enough - too_small > 1:
            middle = (too_small + enough) // 2
            if self.feasible(middle):
                enough = middle
            else:
                too_small = middle
        return enough


def measure(name: str, args: Any) -> dict[str, Any]:
    program = program_named(name)
    options = {"policy": args.policy, "cost_model": args.cost_model}
    plain = try_in(program, args.steps, UNREACHED, **options).stats
    assert plain is not None
    peak = plain.peak_bytes
    floors = floors_of(program, args.steps)
    search = Search(program, args.steps, plain, options)
    least = search.least()
    scanned = range(least + 1, min(100, least + args.scan) + 1)
    holes = [percent for percent in scanned if not search.feasible(percent)]
    return {
        "net": name,
        "policy": args.policy,
        "unbudgeted_peak_bytes": peak,
        "floor_bytes": floors.floor_bytes,
        "g_bytes": floors.g_bytes,
        "least_percent": least,
        "least_bytes": peak * least // 100,
        "least_over_g": peak * least / 100 / floors.g_bytes,
        "scanned": len(scanned),
        "holes_percent": holes,
    }


def cells_of(row: dict[str, Any]) -> tuple[str, ...]:
    holes = ", ".join(f"{percent} %" for percent in row["holes_percent"])
    return (
        row["net"],
        megabytes(row["unbudgeted_peak_bytes"]),
        megabytes(row["floor_bytes"]),
        megabytes(row["g_bytes"]),
        f"{megabytes(row['least_bytes'])} ({row['least_percent']} %)",
        f"{row['least_over_g']:.2f}",
        f"{holes or 'none'} of {row['scanned']}",
    )


def main() -> None:
    parser = parser_of(__doc__, nets=["char_gpt", "resnet"])
    parser.add_argument("--policy", default="dtr", help="see `recoup policies`")
    parser.add_argument("--cost-model", default="bytes", choices=["bytes", "measured"])
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--scan", type=int, default=100, help="steps of 1 %% above the least")
    args = parser.parse_args()
    rows = []
    for name in args.nets:
        rows.append(measure(name, args))
        say(f"{name}: least {rows[-1]['least_percent']} % of the peak")
    print_table(
        f"least feasible budgets, policy {args.policy}",
        ("net", "unbudgeted peak", "floor", "G", "least", "least / G", "holes"),
        map(cells_of, rows),
    )
    write_result(args.out, "least", rows)


if __name__ == "__main__":
    main()
