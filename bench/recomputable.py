"""Counts results of deterministic ops that no budget evicts, by reason.

    python bench/recomputable.py [--samples 4] [--one-in 8 --seed 0] [--page FILE]

Each sample of each operator in PyTorch's OpInfo runs in a scope, forward and backward, with plain
and with sparse operands. After every op, recoup is asked to evict each tensor that the op has made.
What stays could not be freed in any budget.
"""

import collections
import itertools
import random
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from measure import parser_of
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import recoup
from recoup import _C
from recoup.bench.harness.tables import markdown_lines

DTYPES = (torch.float32, torch.int64, torch.complex64)
SPARSE = {
    torch.sparse_coo: "supports_sparse",
    torch.sparse_csr: "supports_sparse_csr",
    torch.sparse_csc: "supports_sparse_csc",
    torch.sparse_bsr: "supports_sparse_bsr",
    torch.sparse_bsc: "supports_sparse_bsc",
}
LIST_OF_NAMES = {
    "uninitialized": "its result is uninitialized memory",
    "not repeatable": "the op reads uninitialized memory, or keeps state",
    "rebinders": "the op gives a tensor another storage",
}
INSIDE = "it was made inside of a custom op, which may hold its address"


def named() -> dict[str, str]:
    """The reason of each op that a list of recoup's names."""
    return {
        name: LIST_OF_NAMES[table] for table, name, _ in _C.named_ops() if table in LIST_OF_NAMES
    }


def kind_of(tensor: torch.Tensor) -> str:
    if tensor.is_quantized:
        return f"quantized, {tensor.qscheme()}"
    if tensor.is_nested:
        return "nested"
    return str(tensor.layout).removeprefix("torch.")


class Evicting(TorchDispatchMode):
    """Asks recoup to evict what each op makes, and counts what stays."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: dict[str, str] = {}
        """The reason by op: empty if all that it made was evicted."""
        self.bytes: collections.Counter[str] = collections.Counter()
        self._named = named()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        known = {key for each in tree_leaves((args, kwargs)) for key in storages(each)}
        result = func(*args, **kwargs)
        for each in tree_leaves(result):
            for tensor in strided(each):
                if not storages(tensor) <= known and tensor.untyped_storage().nbytes() > 0:
                    self._ask(func, tensor, (args, kwargs), each)
        return result

    def _ask(self, func: Any, tensor: torch.Tensor, given: Any, result: torch.Tensor) -> None:
        reason = "" if recoup.evict(tensor) else self._reason(func, given, result)
        self.bytes[reason] += tensor.untyped_storage().nbytes()
        name = f"{func} {kind_of(result)}" + (" (inside)" if reason == INSIDE else "")
        self.ops[name] = self.ops.get(name) or reason

    def _reason(self, func: Any, given: Any, result: torch.Tensor) -> str:
        name = func._schema.name
        if name in self._named:
            return self._named[name]
        traits = _C.replay_traits(name, func._schema.overload_name)
        if not traits["seen"]:
            return "the op is not recorded"
        if not traits["repeatable"]:
            return "the op is not ATen's own"
        odd = {kind_of(x) for x in tree_leaves(given) if isinstance(x, torch.Tensor)}
        odd -= {"strided", *(str(layout).removeprefix("torch.") for layout in SPARSE)}
        if odd:
            return f"an operand is {', '.join(sorted(odd))}"
        return INSIDE if kind_of(result) == "strided" else f"the result is {kind_of(result)}"


def strided(each: Any) -> Iterator[torch.Tensor]:
    """The tensors with a storage of their own that a result consists of."""
    if not isinstance(each, torch.Tensor):
        return
    if each.layout == torch.sparse_coo:
        yield from (each._indices(), each._values())
    elif each.layout in (torch.sparse_csr, torch.sparse_bsr):
        yield from (each.crow_indices(), each.col_indices(), each.values())
    elif each.layout in (torch.sparse_csc, torch.sparse_bsc):
        yield from (each.ccol_indices(), each.row_indices(), each.values())
    elif torch._C._has_storage(each) and not each.is_nested:
        yield each


def storages(each: Any) -> set[int]:
    with torch.utils._python_dispatch._disable_current_modes():
        return {tensor.untyped_storage()._cdata for tensor in strided(each)}


def samples(op: Any, limit: int) -> Iterator[Any]:
    for dtype in DTYPES:
        if dtype not in op.supported_dtypes("cpu"):
            continue
        grad = op.supports_autograd and dtype != torch.int64
        yield from itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=grad), limit)
        for layout, supports in SPARSE.items():
            if getattr(op, supports, False):
                found = op.sample_inputs_sparse(layout, "cpu", dtype, requires_grad=False)
                yield from itertools.islice(found, limit)


def run(op: Any, mode: Evicting, limit: int) -> None:
    torch.manual_seed(0)
    try:
        for sample in samples(op, limit):
            try:
                with mode:
                    result = op(sample.input, *sample.args, **sample.kwargs)
                    tensors = [x for x in tree_leaves(result) if isinstance(x, torch.Tensor)]
                    loss = [x.sum().abs() for x in tensors if x.requires_grad]
                    if loss:
                        torch.stack(loss).sum().backward()
            except Exception:
                continue
    except Exception:
        return  # the operator has no samples of this kind


def measure(one_in: int, seed: int, limit: int) -> Evicting:
    mode = Evicting()
    chosen = random.Random(seed).sample(range(len(op_db)), len(op_db) // one_in)
    options = recoup.Options(small_result_bytes=0)
    for index in sorted(chosen):
        with recoup.budget("1GiB", options=options):
            run(op_db[index], mode, limit)
    return mode


def table(mode: Evicting) -> str:
    reasons: dict[str, list[str]] = collections.defaultdict(list)
    for name, reason in sorted(mode.ops.items()):
        reasons[reason].append(name)
    total = sum(mode.bytes.values())
    rows = [
        (
            reason or "nothing: it is evicted",
            str(len(names)),
            f"{mode.bytes[reason]:,}",
            f"{mode.bytes[reason] / total:.2%}",
        )
        for reason, names in sorted(reasons.items(), key=lambda row: -len(row[1]))
    ]
    lines = markdown_lines(("what stays", "ops and layouts", "bytes", "of all"), rows)
    lines.append("")
    for reason, names in sorted(reasons.items()):
        if reason:
            lines.append(f"- {reason}: " + ", ".join(f"`{name}`" for name in names))
    return "\n".join(lines)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--samples", type=int, default=4, help="of each operator, type and layout")
    parser.add_argument(
        "--one-in", type=int, default=1, metavar="N", help="run 1/N of the operators"
    )
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--page", type=Path, help="write the table into this file")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    text = table(measure(args.one_in, args.seed, args.samples))
    (args.page.write_text(text) if args.page else sys.stdout.write(text + "\n"))


if __name__ == "__main__":
    main()
