"""Runs a program plainly and in a budget, and compares everything it computes bit for bit."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

import recoup
from recoup.bench.flat_options import split

# A tensor of this number of floats is far above the size that the engine always keeps.
N = 1024

AMPLE = "256MiB"


def made(scale: float = 1.0) -> torch.Tensor:
    """A recomputable value."""
    return torch.linspace(-1, 1, N).mul(scale)


def in_thread(work: Callable[[], Any]) -> list[BaseException]:
    """Runs `work` on a new thread outside of the scope; returns the exceptions that it raised."""
    errors: list[BaseException] = []

    def target() -> None:
        recoup._C.carry(False)
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=target)
    thread.start()
    thread.join()
    return errors


def _bytes(tensor: torch.Tensor) -> bytes:
    flat = tensor.clone(memory_format=torch.contiguous_format).reshape(-1)
    return bytes(flat.view(torch.uint8).numpy().tobytes()) if flat.numel() else b""


def bits(tensor: torch.Tensor) -> tuple[Any, ...]:
    """All that a program can see of a tensor. Reads by ops, so that `tensor` does not escape."""
    tensor = tensor.detach()
    if tensor.is_nested:  # a nested tensor has no shape
        return (str(tensor.dtype), *(bits(part) for part in tensor.unbind()))
    head = (str(tensor.dtype), tuple(tensor.shape), str(tensor.layout), str(tensor.device))
    if tensor.device.type != "cpu":
        return head
    if tensor.layout == torch.sparse_coo:
        return (*head, tensor.is_coalesced(), bits(tensor._indices()), bits(tensor._values()))
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        parts = (tensor.crow_indices(), tensor.col_indices(), tensor.values())
        return (*head, *(bits(part) for part in parts))
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        parts = (tensor.ccol_indices(), tensor.row_indices(), tensor.values())
        return (*head, *(bits(part) for part in parts))
    if tensor.layout != torch.strided:
        return (*head, _bytes(tensor.to_dense()))
    if tensor.is_quantized:
        return (*head, _bytes(tensor.int_repr()))
    place = (tensor.stride(), tensor.storage_offset(), tensor.is_conj(), tensor.is_neg())
    return (*head, *place, _bytes(tensor.resolve_conj().resolve_neg()))


def see(tree: Any) -> list[Any]:
    """The bits of each tensor in a tree of lists, tuples and dicts; of other values the repr."""
    return [
        (*bits(leaf), leaf.requires_grad) if isinstance(leaf, torch.Tensor) else repr(leaf)
        for leaf in tree_leaves(tree)
    ]


def clone_tree(tree: Any) -> Any:
    """Copies with the same strides; a tensor that occurs twice is copied once."""
    copies: dict[int, Any] = {}

    def copy(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            made = leaf.detach().clone().requires_grad_(leaf.requires_grad)
        elif isinstance(leaf, torch.Generator):
            made = leaf.clone_state()
        else:
            return leaf
        return copies.setdefault(id(leaf), made)

    return torch.utils._pytree.tree_map(copy, tree)


def check(run: Any) -> None:
    """Recounts the engine's invariants."""
    run.check()


def grow(run: Any, budget_bytes: int) -> None:
    """Enlarges the budget of an open or suspended scope."""
    run._engine.set_budget(budget_bytes)


class Hand:
    """The calls to the engine that a program under test may make; the plain run ignores them."""

    def __init__(self, run: Any = None) -> None:
        self.run = run
        self.log: list[Any] = []

    @property
    def watched(self) -> bool:
        return self.run is not None

    def evict(self, *tensors: torch.Tensor) -> None:
        """Evicts the tensors; each must be evictable."""
        if self.watched:
            for tensor in tensors:
                assert recoup.evict(tensor), f"not evictable: {tensor.shape}"
                assert not recoup.is_resident(tensor)

    def try_evict(self, *tensors: torch.Tensor) -> None:
        if self.watched:
            for tensor in tensors:
                recoup.evict(tensor)

    def assert_non_recomputable(self, *tensors: torch.Tensor) -> None:
        if self.watched:
            for tensor in tensors:
                assert not recoup.evict(tensor), "a value that no op can bring back was evicted"

    def materialize(self, *tensors: torch.Tensor) -> None:
        if self.watched:
            for tensor in tensors:
                recoup.materialize(tensor)
                assert recoup.is_resident(tensor)

    def pin(self, tensor: torch.Tensor) -> contextlib.AbstractContextManager[Any]:
        return recoup.pin(tensor) if self.watched else contextlib.nullcontext()

    def replays(self) -> int:
        return int(self.run.stats().replays) if self.watched else 0

    def see(self, *tree: Any) -> None:
        """Records the current bits, to be compared with the plain run at the same point."""
        self.log.extend(see(tree))

    @contextlib.contextmanager
    def raises(self, kind: type[BaseException]) -> Iterator[None]:
        """Expects the same exception in both runs."""
        try:
            yield
        except kind as error:
            self.log.append(type(error).__name__)
        else:
            raise AssertionError(f"no {kind.__name__}")


Program = Callable[[Hand], Any]


def assert_same(plain: list[Any], watched: list[Any], what: str) -> None:
    assert len(plain) == len(watched), f"{what}: {len(plain)} against {len(watched)} values"
    wrong = [i for i, (a, b) in enumerate(zip(plain, watched, strict=True)) if a != b]
    if wrong:
        first = wrong[0]
        heads = [
            tuple(p if not isinstance(p, bytes) else f"{len(p)} bytes" for p in value)
            if isinstance(value, tuple)
            else value
            for value in (plain[first], watched[first])
        ]
        raise AssertionError(
            f"{what}: values {wrong} of {len(plain)} differ from plain PyTorch; "
            f"the first is {heads[0]} there and {heads[1]} here"
        )


def both(program: Program, budget: str | int = AMPLE, seed: int = 0, **options: Any) -> Any:
    """Runs `program` plainly and in a budget; returns the statistics of the run in the budget."""
    torch.manual_seed(seed)
    hand = Hand()
    result = program(hand)
    plain_end, plain_log, plain_state = see(result), hand.log, torch.get_rng_state()
    del result

    torch.manual_seed(seed)
    with recoup.budget(budget, **split({"small_result_bytes": 0} | options)) as run:
        hand = Hand(run)
        result = program(hand)
        check(run)
    stats = run.stats()
    assert_same(plain_log, hand.log, "on the way")
    assert_same(plain_end, see(result), "at the end")
    assert torch.equal(plain_state, torch.get_rng_state()), "the generator's state differs"
    return stats


def peak(program: Program, seed: int = 0, **options: Any) -> int:
    """The peak of the program in bytes when nothing is evicted."""
    torch.manual_seed(seed)
    with recoup.budget("1GiB", **split({"small_result_bytes": 0} | options)) as run:
        program(Hand(run))
    return int(run.stats().peak_bytes)
