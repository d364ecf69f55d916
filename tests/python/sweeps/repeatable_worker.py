"""Runs each op that samples of operators call twice, on copies; one JSON line per operator.

    python repeatable_worker.py [--samples 3] [--one-in 8 --seed 0] [--only NAME ...]

The copies are at other addresses with the same alignment as all values that recoup replays from:
MKL adds in another order at other offsets in a cache line, and ops that read NumPy's memory are
not replayed. New memory is filled with other bytes by glibc (M_PERTURB). An op whose results
differ has read uninitialized memory, or depends on an address; recoup must not replay it.
"""

import argparse
import ctypes
import faulthandler
import itertools
import json
import random
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from differential import bits
from opinfo_worker import SEED, dtypes_of, seed_all, variants_of
from recoup import _C

M_MMAP_THRESHOLD, M_PERTURB = -3, -6  # constants of malloc.h
FILLS = (0xFF, 0x55, 0x80)  # memory full of 0, 0xAA and 0x7F
libc = ctypes.CDLL(None)


TRUSTED: set[str] = set()  # ops that are compared even if recoup holds them for not repeatable


def repeatable(op: Any) -> bool:
    name, overload = op._schema.name, op._schema.overload_name
    traits = _C.replay_traits(name, overload)
    return name in TRUSTED or (traits["seen"] and traits["repeatable"] and traits["verifiable"])


def copy_of(leaf: Any, copies: dict[int, torch.UntypedStorage]) -> Any:
    """A copy with the same strides and aliases at another address."""
    if isinstance(leaf, torch.Generator):
        return leaf.clone_state()
    if not isinstance(leaf, torch.Tensor) or leaf.layout != torch.strided or leaf.is_quantized:
        return leaf
    old = leaf.untyped_storage()
    if old.data_ptr() == 0:
        return leaf
    if old._cdata not in copies:
        copies[old._cdata] = old.clone()
    new = torch.empty(0, dtype=leaf.dtype)
    new.set_(copies[old._cdata], leaf.storage_offset(), leaf.size(), leaf.stride())
    new = torch._neg_view(new) if leaf.is_neg() else new
    return torch._conj(new) if leaf.is_conj() else new


class Twice(TorchDispatchMode):
    """Runs each op twice on copies before the program runs it."""

    def __init__(self, found: dict[str, str], count: Callable[[str], None]) -> None:
        super().__init__()
        self._found = found
        self._count = count

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if repeatable(func):
            self._compare(func, args, kwargs)
        return func(*args, **kwargs)

    def _compare(self, func: Any, args: Any, kwargs: Any) -> None:
        runs = []
        kept = []  # keeps the memory, so that the second run uses other addresses
        state = torch.get_rng_state()
        for fill in FILLS:
            copies: dict[int, torch.UntypedStorage] = {}
            given = tree_map(lambda leaf, c=copies: copy_of(leaf, c), (args, kwargs))
            kept.append(given)
            torch.set_rng_state(state)
            libc.mallopt(M_PERTURB, fill)
            try:
                result = func(*given[0], **given[1])
                runs.append([seen(leaf) for leaf in tree_leaves((result, given))])
            except Exception as error:
                runs.append([type(error).__name__])
            finally:
                libc.mallopt(M_PERTURB, 0)
        torch.set_rng_state(state)
        name = str(func)
        self._count(name)
        if runs[0] != runs[1]:
            self._found.setdefault(name, f"differs for {describe(args, kwargs)}"[:300])


def seen(leaf: Any) -> Any:
    return bits(leaf) if isinstance(leaf, torch.Tensor) else type(leaf).__name__


def describe(args: Any, kwargs: Any) -> str:
    leaves = tree_leaves((args, kwargs))
    return ", ".join(
        f"{str(x.dtype)[6:]}{list(x.shape)}" if isinstance(x, torch.Tensor) else repr(x)
        for x in leaves
    )


def run_op(op: Any, limit: int | None) -> dict[str, Any]:
    found: dict[str, str] = {}
    counts: dict[str, int] = {}

    def count(name: str) -> None:
        counts[name] = counts.get(name, 0) + 1

    for dtype in dtypes_of(op):
        seed_all(SEED)
        differentiable = op.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
        samples = op.sample_inputs("cpu", dtype, requires_grad=differentiable)
        for sample in itertools.islice(samples, limit):
            for _, variant in variants_of(op, sample):
                with Twice(found, count):
                    try:
                        variant(op, (sample.input, sample.args, sample.kwargs))
                    except Exception:
                        continue
    return {"found": found, "counts": counts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, help="of each operator and dtype; all by default")
    parser.add_argument(
        "--one-in", type=int, default=1, metavar="N", help="run 1/N of the operators"
    )
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--only", nargs="*", help="names of operators")
    parser.add_argument("--trust", nargs="*", default=[], help="ops to compare in any case")
    args = parser.parse_args()
    TRUSTED.update(args.trust)
    faulthandler.enable()  # shows the place of a crash
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    libc.mallopt(M_MMAP_THRESHOLD, 1 << 24)  # mapped blocks are zero instead of filled
    chosen = random.Random(args.seed).sample(range(len(op_db)), len(op_db) // args.one_in)
    for index in sorted(chosen):
        op = op_db[index]
        if args.only and op.name not in args.only:
            continue
        print(json.dumps({"start": op.full_name}), flush=True)
        print(json.dumps({"done": op.full_name, **run_op(op, args.samples)}), flush=True)


if __name__ == "__main__":
    main()
