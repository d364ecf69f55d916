"""Runs ops on large operands repeatedly with several threads; one JSON line per operator.

    python threads_worker.py [--repeat 30] [--samples 2] [--calls 3] [--all-calls 12]
                             [--one-in 8 --seed 0] [--only NAME ...]

The samples of operators are below PyTorch's grain size, so their kernels use one thread. Each op
that a sample calls is therefore repeated on larger operands: every tensor is tiled along the same
dimension, which also makes indices occur several times. An op whose results differ between runs
depends on the order in which threads add or write.
"""

import argparse
import itertools
import json
import os
import random
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from opinfo_worker import SEED, seed_all, variants_of
from repeatable_worker import copy_of, describe, repeatable, seen

LARGE = 1 << 17
"""Number of elements of the largest operand: four times PyTorch's grain size."""
DTYPES = (torch.float32, torch.float64, torch.int64, torch.complex64, torch.bfloat16)
PATIENCE = 1.0
"""Most seconds for all runs of one call, without the first one."""
DIMENSIONS: tuple[Callable[[int], int], ...] = (
    lambda dim: 0,
    lambda dim: dim - 1,
    lambda dim: min(1, dim - 1),
)


def is_plain(leaf: Any) -> bool:
    return (
        isinstance(leaf, torch.Tensor)
        and leaf.layout == torch.strided
        and not leaf.is_quantized
        and leaf.device.type == "cpu"
    )


def enlarged(given: Any, place: Callable[[int], int], elements: int) -> Any | None:
    """The arguments with every tensor tiled along one dimension; None: no tensor can be.

    elements: number of elements of the largest of them, at least.
    """
    tensors = [leaf for leaf in tree_leaves(given) if is_plain(leaf) and leaf.dim() > 0]
    most = max((tensor.numel() for tensor in tensors), default=0)
    if most == 0:
        return None
    count = -(-elements // most)
    generator = torch.Generator().manual_seed(SEED)

    def enlarge(leaf: Any) -> Any:
        if not is_plain(leaf) or leaf.dim() == 0:
            return leaf
        counts = [1] * leaf.dim()
        counts[place(leaf.dim())] = count
        large = leaf.detach().resolve_conj().resolve_neg().repeat(counts)
        if large.dtype.is_floating_point and large.dtype.itemsize >= 4:
            large *= 1 - 1e-3 * torch.rand(large.shape, generator=generator, dtype=large.dtype)
        return large

    return tree_map(enlarge, given)


def takes_long(func: Any, given: Any, place: Callable[[int], int]) -> bool:
    """Whether the op is too slow for large operands, as a run with smaller ones shows."""
    small = enlarged(given, place, LARGE // 32)
    if small is None:
        return False
    copies: dict[int, torch.UntypedStorage] = {}
    args, kwargs = tree_map(lambda leaf: copy_of(leaf, copies), small)
    started = time.monotonic()
    try:
        func(*args, **kwargs)
    except Exception:
        return False
    return time.monotonic() - started > PATIENCE / 100


def variants(func: Any, given: Any) -> Iterator[Any]:
    shapes = set()
    for place in DIMENSIONS:
        if takes_long(func, given, place):
            continue
        large = enlarged(given, place, LARGE)
        shape = [tuple(x.shape) for x in tree_leaves(large) if isinstance(x, torch.Tensor)]
        if large is not None and tuple(shape) not in shapes:
            shapes.add(tuple(shape))
            yield large


class Repeated(TorchDispatchMode):
    """Runs each op several times on large operands before the program runs it."""

    def __init__(
        self, repeat: int, per_op: int, report: dict[str, Any], done: frozenset[str]
    ) -> None:
        super().__init__()
        self._repeat = repeat
        self._per_op = per_op
        self._report = report
        self._done = done

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if repeatable(func):
            self._try(func, (args, kwargs))
        return func(*args, **kwargs)

    def _try(self, func: Any, given: Any) -> None:
        dtypes = sorted(
            {str(x.dtype)[6:] for x in tree_leaves(given) if isinstance(x, torch.Tensor)}
        )
        key = f"{func} {' '.join(dtypes)}"
        tried = self._report["tried"]
        if key in self._done or tried.get(key, 0) >= self._per_op:
            return
        state = torch.get_rng_state()
        for large in variants(func, given):
            torch.set_rng_state(state)
            if self._compare(func, large):
                tried[key] = tried.get(key, 0) + 1
        torch.set_rng_state(state)

    def _compare(self, func: Any, large: Any) -> bool:
        first: list[Any] = []
        state = torch.get_rng_state()
        started = 0.0
        for run in range(self._repeat):
            copies: dict[int, torch.UntypedStorage] = {}
            given = tree_map(lambda leaf, c=copies: copy_of(leaf, c), large)
            torch.set_rng_state(state)
            try:
                result = func(*given[0], **given[1])
            except Exception:
                return False
            if run == 0:  # an operator's first parallel call may differ: it is not compared
                started = time.monotonic()
                continue
            now = [seen(leaf) for leaf in tree_leaves((result, given))]
            first = first or now
            if now != first:
                self._report["found"].setdefault(str(func), describe(*large)[:300])
                return True
            if time.monotonic() - started > PATIENCE:
                break
        return True


def run_op(
    op: Any, limit: int | None, repeat: int, per_op: int, done: frozenset[str]
) -> dict[str, Any]:
    report: dict[str, Any] = {"found": {}, "tried": {}}
    for dtype in DTYPES:
        if dtype not in op.supported_dtypes("cpu"):
            continue
        seed_all(SEED)
        differentiable = op.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
        samples = op.sample_inputs("cpu", dtype, requires_grad=differentiable)
        for sample in itertools.islice(samples, limit):
            for _, variant in variants_of(op, sample):
                with Repeated(repeat, per_op, report, done):
                    try:
                        variant(op, (sample.input, sample.args, sample.kwargs))
                    except Exception:
                        continue
    return report


def has_indices(op: Any) -> bool:
    """Whether a sample has a tensor of integers in addition to the input."""
    dtype = next((dtype for dtype in DTYPES if dtype in op.supported_dtypes("cpu")), None)
    if dtype is None:
        return False
    seed_all(SEED)
    samples = op.sample_inputs("cpu", dtype)
    return any(
        is_plain(leaf) and leaf.dtype == torch.int64
        for sample in itertools.islice(samples, 4)
        for leaf in tree_leaves((sample.args, sample.kwargs))
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=30, help="runs of each call")
    parser.add_argument("--samples", type=int, help="of each operator and dtype; all by default")
    parser.add_argument("--calls", type=int, default=3, help="calls of each op and its dtypes")
    parser.add_argument("--all-calls", type=int, help="the same over all operators; no limit")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--one-in", type=int, default=1, metavar="N", help="run 1/N of the operators"
    )
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--only", nargs="*", help="names of operators")
    parser.add_argument("--indexed", action="store_true", help="only operators that take indices")
    args = parser.parse_args()
    torch.set_num_threads(1)  # a forked child cannot use the parent's threads
    warnings.simplefilter("ignore")
    chosen = random.Random(args.seed).sample(range(len(op_db)), len(op_db) // args.one_in)
    tried: Counter[str] = Counter()
    for index in sorted(chosen):
        op = op_db[index]
        if (args.only and op.name not in args.only) or (args.indexed and not has_indices(op)):
            continue
        done = frozenset(
            key for key, calls in tried.items() if args.all_calls and calls >= args.all_calls
        )
        # Tiled operands may be invalid in a way that PyTorch does not check.
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            torch.set_num_threads(args.threads)
            report = run_op(op, args.samples, args.repeat, args.calls, done)
            with open(write, "w", encoding="utf-8") as pipe:
                json.dump(report, pipe)
            os._exit(0)
        os.close(write)
        with open(read, encoding="utf-8") as pipe:
            text = pipe.read()
        if os.waitpid(child, 0)[1] != 0:
            print(json.dumps({"crashed": op.full_name}), flush=True)
            continue
        report = json.loads(text)
        tried.update(report["tried"])
        print(json.dumps({"done": op.full_name, **report}), flush=True)


if __name__ == "__main__":
    main()
