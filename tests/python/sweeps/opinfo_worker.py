"""Runs operators' samples plainly and with everything evicted after every op; one JSON line an op.

    python opinfo_worker.py [--fraction 0.2] [--seed 1] [--only NAME ...]   compare with recoup
    python opinfo_worker.py --plain                                      plain PyTorch with itself

`test_opinfo.py` starts it with `--indices -` and gives positions in `op_db` on standard input.
"""

import argparse
import faulthandler
import json
import random
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map

from differential import assert_same, check, clone_tree, see

BUDGET = "1GiB"
TORTURE = {"evict_after_op": True, "small_result_bytes": 0}
SEED = 20240607

# Operators whose results differ between two plain runs, as `--plain` finds. They run, too, but
# their bytes are not compared.
UNINITIALIZED = "returns uninitialized memory"
UNREPEATABLE = "two plain runs differ"
EXCLUDED = {
    "empty": UNINITIALIZED,
    "empty_like": UNINITIALIZED,
    "empty_permuted": UNINITIALIZED,
    "empty_strided": UNINITIALIZED,
    "new_empty": UNINITIALIZED,
    "new_empty_strided": UNINITIALIZED,
    "linalg.lstsq": UNREPEATABLE,
}

INTEGERS = (torch.int64, torch.int32, torch.uint8, torch.int16, torch.int8)
# For the few operators that support neither float32 nor these integers.
LAST_RESORTS = (torch.complex64, torch.float8_e4m3fn)


def dtypes_of(op: Any) -> list[torch.dtype]:
    supported = op.supported_dtypes("cpu")
    chosen = [torch.float32] if torch.float32 in supported else []
    chosen += [dtype for dtype in INTEGERS if dtype in supported][:1]
    return chosen or [dtype for dtype in LAST_RESORTS if dtype in supported][:1]


def seed_all(seed: int) -> None:
    # Like torch.manual_seed, which would also record the stack of each call for unused GPUs.
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


def forward_and_backward(op: Any, inputs: Any) -> Any:
    return with_gradients(op(inputs[0], *inputs[1], **inputs[2]), inputs)


def in_place(op: Any, inputs: Any) -> Any:
    # A leaf that needs a gradient refuses in-place writes, so a copy is written.
    target = tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) else x, inputs[0])
    result = op.inplace_variant(target, *inputs[1], **inputs[2])
    return with_gradients(result, inputs), target


def without_gradients(inputs: Any) -> Any:
    return tree_map(lambda x: x.detach() if isinstance(x, torch.Tensor) else x, inputs)


def into_out(op: Any, inputs: Any) -> Any:
    inputs = without_gradients(inputs)
    out = tree_map(lambda x: torch.full_like(x, 1), op(inputs[0], *inputs[1], **inputs[2]))
    return op(inputs[0], *inputs[1], **inputs[2], out=out), out


def into_resized_out(op: Any, inputs: Any) -> Any:
    inputs = without_gradients(inputs)
    out = tree_map(lambda x: x.new_zeros(0), op(inputs[0], *inputs[1], **inputs[2]))
    return op(inputs[0], *inputs[1], **inputs[2], out=out), out


def with_gradients(result: Any, inputs: Any) -> Any:
    sources = [x for x in tree_leaves(inputs) if isinstance(x, torch.Tensor) and x.requires_grad]
    results = [
        x
        for x in tree_leaves(result)
        if isinstance(x, torch.Tensor) and x.requires_grad and x.layout == torch.strided
    ]
    if not sources or not results:
        return result
    directions = [torch.randn_like(x) for x in results]
    return result, torch.autograd.grad(results, sources, directions, allow_unused=True)


def variants_of(op: Any, sample: Any) -> list[tuple[str, Callable[[Any, Any], Any]]]:
    variants: list[tuple[str, Callable[[Any, Any], Any]]] = [("", forward_and_backward)]
    if op.inplace_variant is not None and not sample.broadcasts_input:
        variants.append(("in-place", in_place))
    if op.supports_out:
        variants += [("out=", into_out), ("resized out=", into_resized_out)]
    return variants


def outcome(variant: Callable[[Any, Any], Any], op: Any, inputs: Any) -> Any:
    """Result, gradients, inputs and generator state after one call, or its exception."""
    seed_all(SEED)
    try:
        return variant(op, inputs), inputs, torch.get_rng_state()
    except Exception as error:
        return "raised", type(error).__name__, re.sub("0x[0-9a-f]+", "0x", str(error))[:300]


class Plain:
    """A second plain run, with other garbage in uninitialized memory."""

    replays = evictions = 0

    def __call__(self, variant: Callable[[Any, Any], Any], op: Any, sample: Any) -> Iterable[Any]:
        litter = [torch.full((2**k,), 0.7 * k) for k in range(16) for _ in range(8)]
        del litter
        yield "again", see(outcome(variant, op, clone_tree(sample)))


class Evicting:
    """A run in which all evictable values are evicted after each op."""

    def __init__(self) -> None:
        import recoup

        self._recoup = recoup
        self.replays = 0
        self.evictions = 0

    def __call__(self, variant: Callable[[Any, Any], Any], op: Any, sample: Any) -> Iterable[Any]:
        inputs = clone_tree(sample)
        with self._recoup.budget(BUDGET, options=self._recoup.Options(**TORTURE)) as run:
            result = outcome(variant, op, inputs)
            check(run)
        self._count(run)
        yield "inputs made outside the scope", see(result)
        with self._recoup.budget(BUDGET, options=self._recoup.Options(**TORTURE)) as run:
            result = outcome(variant, op, clone_tree(sample))
            check(run)
        self._count(run)
        yield "inputs made inside the scope", see(result)

    def _count(self, run: Any) -> None:
        stats = run.stats()
        self.replays += stats.replays
        self.evictions += stats.evictions


@dataclass(frozen=True)
class Choice:
    """Samples to run: the first ones of each operator and dtype, and a fraction of the others."""

    fraction: float = 1.0
    seed: int = 0

    FIRST: ClassVar[int] = 2

    def takes(self, op: Any, dtype: torch.dtype, index: int) -> bool:
        drawn = random.Random(f"{self.seed} {op.full_name} {dtype} {index}").random()
        return index < self.FIRST or drawn < self.fraction


def run_op(op: Any, choice: Choice, make: Callable[[], Any]) -> dict[str, Any]:
    second = make()
    failures: list[str] = []
    count = raised = 0
    start = time.monotonic()
    for dtype in dtypes_of(op):
        seed_all(SEED)
        differentiable = op.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
        samples = op.sample_inputs("cpu", dtype, requires_grad=differentiable)
        for index, sample in enumerate(samples):
            if not choice.takes(op, dtype, index):
                continue
            generator_state = torch.get_rng_state(), random.getstate(), np.random.get_state()
            inputs = (sample.input, sample.args, sample.kwargs)
            for name, variant in variants_of(op, sample):
                first = see(outcome(variant, op, clone_tree(inputs)))
                count += 1
                raised += first[0] == "'raised'"
                where = f"{str(dtype)[6:]} sample {index} {name}".rstrip()
                try:
                    for how, other in second(variant, op, inputs):
                        if op.name in EXCLUDED and make is Evicting:
                            continue
                        assert_same(first, other, f"{where}, {how}")
                except Exception as error:
                    failures.append(f"{where}: {type(error).__name__}: {error}")
            torch.set_rng_state(generator_state[0])
            random.setstate(generator_state[1])
            np.random.set_state(generator_state[2])
    return {
        "samples": count,
        "raised": raised,
        "replays": second.replays,
        "evictions": second.evictions,
        "seconds": round(time.monotonic() - start, 3),
        "failures": failures,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--fraction", type=float, default=1.0, help="of the samples; all by default"
    )
    parser.add_argument("--seed", type=int, default=0, help="chooses the samples")
    parser.add_argument("--only", nargs="*", help="names of operators")
    parser.add_argument("--indices", help="`-`: read positions in op_db from standard input")
    parser.add_argument("--plain", action="store_true", help="compare plain PyTorch with itself")
    args = parser.parse_args()
    choice = Choice(args.fraction, args.seed)
    indices = json.load(sys.stdin) if args.indices else range(len(op_db))
    faulthandler.enable()  # shows the place of a crash
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for index in indices:
        op = op_db[index]
        if args.only and op.name not in args.only:
            continue
        print(json.dumps({"start": index, "op": op.full_name}), flush=True)
        result = run_op(op, choice, Plain if args.plain else Evicting)
        print(json.dumps({"done": index, "op": op.full_name, **result}), flush=True)


if __name__ == "__main__":
    main()
