"""Several storages over the same memory: a write through one is seen as a write to all of them."""

import ctypes
import gc
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.dlpack

import recoup
from differential import AMPLE, Hand, N, assert_same, in_thread, made, see
from recoup._patching.call_pins import unseen
from recoup.bench.flat_options import split

# The originals, as a C extension calls them, instead of a scope's wrappers.
NUMPY, FROM_NUMPY = torch.Tensor.numpy, torch.from_numpy

KEPT: list[Any] = []  # a variable of a module: a spill tier finds the objects in it

Parts = list[Any]
Make = Callable[[], Parts]
View = Callable[[torch.Tensor], torch.Tensor]


def compare(make: Make, program: Callable[..., Any], budget: str | int = AMPLE, **more: Any) -> Any:
    """Runs the program on tensors from before the scope, plainly and in a budget."""
    hand = Hand()
    KEPT[:] = make()
    result = program(hand, *KEPT)
    plain = hand.log + see([result, KEPT])
    KEPT[:] = make()
    with recoup.budget(budget, **split({"small_result_bytes": 0} | more)) as run:
        hand = Hand(run)
        result = program(hand, *KEPT)
        run.set_budget("1GiB")
        run.check()
    assert_same(plain, hand.log + see([result, KEPT]), "views")
    KEPT.clear()
    return run.stats()


def at_address(tensor: torch.Tensor) -> torch.Tensor:
    """A view that does not keep the memory of `tensor` alive."""
    address = (ctypes.c_float * tensor.numel()).from_address(tensor.data_ptr())
    return torch.frombuffer(address, dtype=torch.float32)


def slice_of_storage(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(0).set_(tensor.untyped_storage()[1024:2048])


VIEWS: dict[str, View] = {
    "from_dlpack": torch.from_dlpack,
    "from_dlpack of a part": lambda tensor: torch.from_dlpack(tensor[100:300]),
    "capsule": lambda tensor: torch.utils.dlpack.from_dlpack(torch.to_dlpack(tensor)),
    "from_numpy": lambda tensor: torch.from_numpy(tensor.numpy()),
    "from_numpy of a part": lambda tensor: torch.from_numpy(tensor.numpy()[256:512]),
    "as_tensor": lambda tensor: torch.as_tensor(tensor.numpy()),
    "frombuffer": lambda tensor: torch.frombuffer(tensor.numpy(), dtype=torch.float32),
    "frombuffer with an offset": lambda tensor: torch.frombuffer(
        tensor.numpy(), dtype=torch.float32, count=99, offset=400
    ),
    "the last bytes": lambda tensor: torch.frombuffer(
        tensor.numpy(), dtype=torch.uint8, offset=4 * N - 1
    ),
    "slice of a storage": slice_of_storage,
    "address": at_address,
}


@pytest.mark.parametrize("spill", [{}, {"spill": "64MiB"}], ids=["", "spill"])
@pytest.mark.parametrize("written", ["view", "owner"])
@pytest.mark.parametrize("name", VIEWS)
def test_a_write_through_the_view_or_the_owner_is_a_write_to_both(
    name: str, written: str, spill: Any
) -> None:
    def make() -> Parts:
        owner = torch.linspace(1, 2, N)
        return [owner, VIEWS[name](owner)]

    def program(hand: Hand, owner: torch.Tensor, view: torch.Tensor) -> Any:
        target = view if written == "view" else owner
        of_owner, of_view = owner * 2, view.double() * 3
        deeper = of_owner.exp()
        hand.try_evict(of_owner, of_view, deeper)
        target.add_(1)
        hand.see(deeper)
        hand.try_evict(of_owner, of_view, deeper)
        late = owner * 5
        hand.try_evict(late)
        target.mul_(3)
        hand.see(of_owner, of_view, late)
        return of_owner, of_view, deeper, late

    compare(make, program, **spill)


@pytest.mark.parametrize("spill", [{}, {"spill": "64MiB"}], ids=["", "spill"])
@pytest.mark.parametrize("first", ["owner", "view", "both"])
def test_either_storage_may_be_used_first(first: str, spill: Any) -> None:
    def make() -> Parts:
        owner = torch.linspace(1, 2, N)
        return [owner, torch.from_dlpack(owner), torch.from_numpy(owner.numpy()[5:])]

    def program(hand: Hand, *parts: torch.Tensor) -> Any:
        owner, view, part = parts
        if first == "view":
            hand.see(view + 1)
        if first == "both":
            view += owner
        before = owner * 2
        hand.try_evict(before)
        if first == "both":
            torch.mul(owner, 2, out=view)
        else:
            view += 1
        between = owner * 2
        hand.try_evict(before, between)
        part += 1
        hand.see(before)
        return before, between, owner * 2

    compare(make, program, **spill)


@pytest.mark.parametrize("spill", [{}, {"spill": "64MiB"}], ids=["", "spill"])
@pytest.mark.parametrize("through", ["view", "owner"])
def test_writes_when_the_dependents_do_not_fit(through: str, spill: Any) -> None:
    """Dependents that do not fit are later computed from a copy of the old content."""

    def make() -> Parts:
        owner = torch.linspace(1, 2, N)
        return [owner, torch.from_dlpack(owner)]

    def program(hand: Hand, owner: torch.Tensor, view: torch.Tensor) -> Any:
        target = view if through == "view" else owner
        products = [owner * k for k in range(1, 60)]
        target.add_(1)
        sums = [product.double().sum() for product in products]
        target.mul_(2)
        return products, sums, [owner * k for k in range(10)]

    stats = compare(make, program, 32 * 4 * N, max_replay_ratio=1000, **spill)
    assert stats.evictions > 20


def test_a_view_of_a_tensor_from_an_earlier_scope() -> None:
    def make() -> Parts:
        with recoup.budget(AMPLE):
            owner = made() + 2
        return [owner, torch.from_dlpack(owner)]

    def program(hand: Hand, owner: torch.Tensor, view: torch.Tensor) -> Any:
        before = owner * 2
        hand.try_evict(before)
        view.add_(1)
        return before

    compare(make, program)


@pytest.mark.parametrize("how", ["two mappings", "share_memory_", "lazy clone"])
def test_memory_from_outside_of_allocators(how: str, tmp_path: Path) -> None:
    def make() -> Parts:
        if how == "two mappings":
            path = tmp_path / "bytes"
            path.write_bytes(bytes(4 * N))
            return [torch.from_file(str(path), shared=True, size=N) for _ in range(2)]
        owner = torch.linspace(1, 2, N)
        if how == "lazy clone":
            return [owner, torch._lazy_clone(owner)]
        return [owner.share_memory_(), torch.from_dlpack(owner)]

    def program(hand: Hand, *parts: torch.Tensor) -> Any:
        before = [part * 2 for part in parts]
        hand.try_evict(*before)
        for part in parts:
            part.add_(1)
            before += [each + 3 for each in parts]
            hand.try_evict(*before)
        return before

    compare(make, program)


def test_one_op_may_use_owner_and_view() -> None:
    def make() -> Parts:
        owner = torch.linspace(1, 2, N)
        return [owner, torch.from_dlpack(owner)]

    def program(hand: Hand, owner: torch.Tensor, view: torch.Tensor) -> Any:
        before, other = owner * 2, made(3)
        hand.try_evict(before, other)
        torch._foreach_add_([view, other], 1)
        middle = owner * 2
        hand.try_evict(middle, other)
        view.copy_(owner * 7)
        return before, middle, other

    compare(make, program)


@pytest.mark.parametrize("spill", [{}, {"spill": "64MiB"}], ids=["", "spill"])
@pytest.mark.parametrize("seed", range(30))
def test_random_programs_on_views(seed: int, spill: Any) -> None:
    """Owners, views of parts of them and views of views, used in any order."""

    def make() -> Parts:
        chance = random.Random(seed)
        parts = [torch.linspace(1, 2, N) for _ in range(3)]
        for _ in range(6):
            part = chance.choice(parts)
            start = chance.randrange(part.numel())
            parts.append(torch.from_numpy(part.numpy()[start : chance.randint(start + 1, N)]))
        return parts

    def program(hand: Hand, *outside: torch.Tensor) -> Any:
        chance = random.Random(seed)
        held = list(outside)
        made = [part * 2 for part in held]
        for _ in range(60):
            act = chance.randrange(5)
            one = chance.choice(held)
            if act == 0:
                one.add_(chance.randrange(3))
            elif act == 1:
                one.mul_(chance.choice(made + held).mean())
            elif act == 2:
                made.append(chance.choice(made + held).sin())
            elif act == 3 and chance.randrange(4) == 0 and len(held) > 2:
                held.pop(chance.randrange(len(held)))
            else:
                made[chance.randrange(len(made))] = one * 3
            hand.try_evict(*chance.sample(made, len(made) // 2))
        return made

    compare(make, program, 64 * 4 * N, **spill)


# ---- views that are made, freed and made again ----


@pytest.mark.parametrize("how", ["capsule", "array", "array seen by C", "address"])
def test_a_view_made_in_the_scope_from_an_address_taken_before(how: str) -> None:
    def make() -> Parts:
        owner = torch.linspace(1, 2, N)
        if how == "capsule":
            return [owner, torch.to_dlpack(owner)]
        return [owner, owner.data_ptr() if how == "address" else owner.numpy()]

    def view_of(taken: Any) -> torch.Tensor:
        if how == "address":
            taken = (ctypes.c_float * N).from_address(taken)
            return torch.frombuffer(taken, dtype=torch.float32)
        if how == "capsule":
            return torch.from_dlpack(taken)
        return (FROM_NUMPY if "C" in how else torch.from_numpy)(taken)

    def program(hand: Hand, owner: torch.Tensor, taken: Any) -> Any:
        before = owner * 2
        hand.try_evict(before)
        view = view_of(taken)
        KEPT[1] = None
        view.add_(1)
        return before, view

    compare(make, program)


def test_a_freed_view_may_be_made_again() -> None:
    def make() -> Parts:
        owner = torch.linspace(1, 2, N)
        return [owner, owner.numpy(), [torch.from_dlpack(owner)]]

    def program(hand: Hand, owner: torch.Tensor, array: Any, views: list[torch.Tensor]) -> Any:
        results = [owner * 2]
        hand.try_evict(*results)
        views.pop().add_(1)
        for k in range(5):
            gc.collect()
            results.append(owner * k)
            hand.try_evict(*results)
            torch.from_numpy(array[k:]).add_(1)
        array[:] = 9  # NumPy's own writes are harmless now
        return results

    compare(make, program)


def test_a_view_that_outlives_its_owner() -> None:
    def make() -> Parts:
        owner = torch.linspace(1, 2, N)
        return [[owner], torch.from_dlpack(owner)]

    def program(hand: Hand, owner: list[torch.Tensor], view: torch.Tensor) -> Any:
        before = owner[0] * 2
        hand.try_evict(before)
        owner.clear()
        gc.collect()
        if hand.watched:
            with pytest.raises(recoup.OutOfBudgetError):
                torch.empty(1 << 40)
        view.add_(1)
        return before, view * 2

    compare(make, program)


def test_an_owner_without_views_is_recomputable_again() -> None:
    """The record of a view without references is removed on a shortage."""
    owner = torch.linspace(1, 2, N)
    view = at_address(owner)
    with recoup.budget(AMPLE, options=recoup.Options(small_result_bytes=0)):
        view.add_(1)
        del view
        with pytest.raises(recoup.OutOfBudgetError):
            torch.empty(1 << 40)
        product = owner * 2
        assert recoup.evict(product)
        assert torch.equal(product, (torch.linspace(1, 2, N) + 1) * 2)


def test_tensors_without_views_stay_recomputable() -> None:
    owners = [torch.ones(N) for _ in range(50)]
    view = torch.from_dlpack(owners[7])
    with recoup.budget(AMPLE, options=recoup.Options(small_result_bytes=0)) as run:
        products = [owner * 2 for owner in owners]
        view.add_(1)
        assert [recoup.evict(product) for product in products].count(False) == 1
        assert run.stats().escapes == 2
        assert all(product.sum().item() == 2 * N for product in products)


# ---- memory of the pool ----


@pytest.mark.parametrize("start", [0, 100])
@pytest.mark.parametrize("make", ["empty", "tensor", "unseen"])
def test_views_of_the_pool_made_in_c(make: str, start: int) -> None:
    values = [1.0 + k for k in range(N)]

    def program(hand: Hand) -> Any:
        if make == "tensor":
            owner = torch.tensor(values)
        elif make == "empty":
            owner = torch.empty(N)
        else:
            with unseen():
                owner = torch.empty(N)
        array = NUMPY(owner)
        array[:] = values
        view = FROM_NUMPY(array[start:])
        hand.see(view + 1)
        before = owner * 2
        hand.try_evict(before)
        view.add_(1)
        return owner, before

    compare(list, program)


@pytest.mark.parametrize("name", VIEWS)
def test_views_of_the_pool(name: str) -> None:
    def program(hand: Hand) -> Any:
        owner = made() + 2
        before = owner * 2
        hand.try_evict(before)
        view = VIEWS[name](owner)
        hand.try_evict(before, owner)
        litter = [made(k) for k in range(20)]
        view.add_(1)
        hand.try_evict(*litter)
        return owner, before, view

    compare(list, program)


# ---- errors ----


def test_a_view_that_did_not_fit_can_be_used_later() -> None:
    size = 1 << 18
    owner = torch.linspace(1, 2, size)
    view = torch.from_dlpack(owner)
    want = owner * 2
    with recoup.budget("5MiB") as run:  # the owner and the view count twice
        product = owner * 2
        assert recoup.evict(product)
        with recoup.pin(torch.zeros(3 * size)), pytest.raises(recoup.OutOfBudgetError):
            view.add_(1)
        assert owner[0].item() == 1
        run.set_budget("16MiB")
        view.add_(1)
        assert torch.equal(product, want)


def test_a_thread_outside_the_scope_gets_an_error() -> None:
    owner = torch.linspace(1, 2, N)
    array = owner.numpy()
    with recoup.budget(AMPLE, options=recoup.Options(small_result_bytes=0)):
        product = owner * 2
        assert recoup.evict(product)
        errors = in_thread(lambda: torch.from_numpy(array).add_(1))
        assert len(errors) == 1 and "outside the budget scope" in str(errors[0])
        recoup.materialize(product)
        torch.from_numpy(array).add_(1)
        assert torch.equal(product, torch.linspace(1, 2, N) * 2)


# ---- the spill tier ----


@pytest.mark.serial
@pytest.mark.parametrize("name", VIEWS)
def test_a_viewed_tensor_is_not_imported(name: str) -> None:
    def make() -> Parts:
        owner = torch.linspace(1, 2, 1 << 18)
        return [owner, VIEWS[name](owner), torch.linspace(2, 3, 1 << 18)]

    def program(hand: Hand, *parts: torch.Tensor) -> Any:
        owner, view, _ = parts
        others = [owner * k for k in range(6)] + [KEPT[2] * k for k in range(6)]
        view.add_(1)
        others += [owner * k for k in range(6)]
        view.add_(1)
        KEPT[2].add_(1)
        return [other.double().sum() for other in others]

    assert compare(make, program, "12MiB", spill="256MiB").imports == 1


def test_many_views_are_cheap() -> None:
    memory = np.zeros(N, dtype=np.float32)
    with recoup.budget(AMPLE) as run:
        views = [torch.from_numpy(memory[k % 100 :]) for k in range(3000)]
        for view in views:
            view.add_(1)
        run.check()
        assert run.stats().escapes == 3000
    assert memory[99] == 3000
