"""The contract: memory that other code can access is immovable and is never recomputed."""

import contextlib
import ctypes
import io
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.jit.mobile import _load_for_lite_interpreter

import recoup
from differential import Hand, N, both, check, in_thread, made

# ---- escapes ----


def test_writes_through_numpy() -> None:
    def program(hand: Hand) -> object:
        x = made()
        before = x.exp()
        hand.evict(before)
        array = x.numpy()
        array += 1
        hand.see(before)
        after = x.exp()
        hand.try_evict(after, before)
        array[:] = 5
        hand.assert_non_recomputable(x)
        return before, after, x, array.sum()

    assert both(program).escapes > 0


@pytest.mark.parametrize("how", ["numpy", "asarray", "dlpack", "data_ptr", "from_numpy"])
def test_an_escaped_tensor_stays_in_place(how: str) -> None:
    def program(hand: Hand) -> object:
        x = made()
        child = x * 2
        hand.evict(child)
        if how == "numpy":
            array = x.numpy()
        elif how == "asarray":
            array = np.asarray(x)
        elif how == "dlpack":
            array = np.from_dlpack(x)
        elif how == "data_ptr":
            pointer = ctypes.cast(x.data_ptr(), ctypes.POINTER(ctypes.c_float))
            array = np.ctypeslib.as_array(pointer, (N,))
        else:
            array = np.linspace(-1, 1, N, dtype=np.float32)
            x = torch.from_numpy(array)
            child = x * 2
        hand.assert_non_recomputable(x)
        litter = [made(i) for i in range(50)]  # pressure: all other blocks are moved
        if how != "dlpack":  # NumPy makes this array read-only
            array[0] = 42
        late = x + 1
        hand.try_evict(late, *litter)
        if how != "dlpack":
            array[1] = 43
        assert x[0].item() == array[0] and x[1].item() == array[1]
        return x, child, late, array.copy().sum()

    both(program, 64 * 4 * N)


def test_a_tensor_made_by_from_numpy_before_the_scope() -> None:
    array = np.zeros(N, dtype=np.float32)
    outside = torch.from_numpy(array)

    def program(hand: Hand) -> object:
        array[:] = 1
        x = outside * 2
        hand.try_evict(x)
        array[:] = 3
        return x, outside * 2

    both(program)


def test_lazy_clone() -> None:
    def program(hand: Hand) -> object:
        x = made()
        lazy = torch._lazy_clone(x)
        child = lazy * 2
        hand.try_evict(x, lazy, child)
        x.add_(1)
        hand.see(lazy, child)
        lazy.mul_(5)
        hand.try_evict(x, lazy, child)
        return x, lazy, child

    both(program)


# ---- unseen and asynchronous writers ----


HOOKS = Path(torch.__file__).parent / "include/c10/core/StorageMaterializer.h"


@pytest.mark.skipif(not HOOKS.exists(), reason="this PyTorch has no hooks of storages")
def test_a_write_from_another_thread() -> None:
    """The write is recorded or refused; earlier values are never computed from the new content."""
    wanted = made(), made().exp(), made().sin()
    with recoup.budget("64MiB") as run:
        x = made()
        before, resident = x.exp(), x.sin()
        assert recoup.evict(before)
        errors = in_thread(lambda: x.add_(1))
        if errors:
            assert "recoup" in str(errors[0])
            assert torch.equal(x, wanted[0])
        else:
            assert torch.equal(x, wanted[0] + 1)
        after = x * 2
        recoup.evict(resident)
        recoup.evict(after)
        assert torch.equal(resident, wanted[2])
        assert torch.equal(after, x * 2)
        try:
            assert torch.equal(before, wanted[1])
        except RuntimeError as error:
            assert not errors and "recoup" in str(error)
            del before
        check(run)
    assert run.stats().evictions > 0
    assert torch.equal(resident, wanted[2])


@pytest.fixture
def process_group(tmp_path: object) -> Iterator[None]:
    import torch.distributed as dist

    if not dist.is_available():
        pytest.skip("this torch has no torch.distributed")
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("process_group")
def test_asynchronous_writes_of_a_process_group() -> None:
    import torch.distributed as dist

    def program(hand: Hand) -> object:
        x = made()
        before = x.exp()
        hand.evict(before, x)
        work = dist.all_reduce(x, async_op=True)
        during = made(3)
        hand.evict(during)
        work.wait()
        after = x * 2
        hand.assert_non_recomputable(x)
        # A variable, because gloo's thread may still release a temporary tensor while Python
        # does, which PyTorch does not allow (pytorch issue 75529).
        gathered, given = [torch.zeros(N)], made(4)
        dist.all_gather(gathered, given)
        dist.broadcast(x, 0)
        hand.try_evict(after, *gathered)
        return x, before, during, after, gathered

    assert both(program).replays > 0


def test_kernels_that_allocate_on_other_threads() -> None:
    def program(hand: Hand) -> object:
        q, k, v = (torch.randn(2, 4, 128, 32).requires_grad_() for _ in range(3))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        out.square().sum().backward()
        return out, q.grad, k.grad, v.grad

    assert both(program, evict_after_op=True).replays > 0


def _saved(module: Any) -> Any:
    file = io.BytesIO()
    torch.jit.save(module, file)
    file.seek(0)
    return torch.jit.load(file)


def _saved_by_name(module: Any) -> Any:
    with tempfile.NamedTemporaryFile() as file:
        module.save(file.name)
        return torch.jit.load(file.name)


def _saved_for_mobile(module: Any) -> Any:
    return _load_for_lite_interpreter(io.BytesIO(module._save_to_buffer_for_lite_interpreter()))


def _saved_for_mobile_by_name(module: Any) -> Any:
    with tempfile.NamedTemporaryFile() as file:
        module._save_for_lite_interpreter(file.name)
        return _load_for_lite_interpreter(file.name)


def _saved_flat(module: Any) -> Any:
    with tempfile.NamedTemporaryFile() as file:
        torch.jit.save_jit_module_to_flatbuffer(module, file.name)
        return torch.jit.jit_module_from_flatbuffer(file.name)


class Shift(torch.nn.Module):
    """A module with a parameter, and with tensors that are neither parameters nor buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(made())
        self.shift = made(2)
        self.named = {"more": made(3)}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight + self.shift + self.named["more"]


@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")
@pytest.mark.parametrize(
    "save", [_saved, _saved_by_name, _saved_for_mobile, _saved_for_mobile_by_name, _saved_flat]
)
def test_torchscript_saves_evicted_tensors(save: Callable[[Any], Any]) -> None:
    def program(hand: Hand) -> object:
        module = Shift()
        hand.evict(module.weight.detach(), module.shift, module.named["more"])
        return save(torch.jit.script(module))(torch.ones(N)).detach()

    assert both(program).evictions > 0


@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")
@pytest.mark.parametrize("save", [_saved, _saved_by_name])
def test_torchscript_saves_evicted_constants(save: Callable[[Any], Any]) -> None:
    def program(hand: Hand) -> object:
        constant = made(2)
        function = torch.jit.trace(lambda x: x * constant, torch.ones(N))
        hand.evict(constant)
        return save(function)(torch.ones(N))

    assert both(program).evictions > 0


def test_queries_about_aliases_work_on_evicted_tensors() -> None:
    with recoup.budget("8MiB", options=recoup.Options(small_result_bytes=0)):
        x = made()
        y = x[1:]
        assert recoup.evict(x)
        assert torch._C._is_alias_of(x, y)  # type: ignore[attr-defined]
        assert recoup.evict(x)
        assert not torch._C._is_cow_tensor(x)  # type: ignore[attr-defined]


def test_slices_of_storages_do_not_leak_memory() -> None:
    with recoup.budget("16MiB") as run:
        for _ in range(30):
            t = torch.ones(2**18) + 0
            assert t.untyped_storage()[:400][3] == 63
        run.check()


# ---- replaced memory ----

RESIZE = torch.UntypedStorage.resize_  # the original, as a C extension calls it


def test_resizing_a_tensor_from_before_a_scope_ends_its_pending_write() -> None:
    for _ in range(2):  # the second scope finds the first one's memory again
        x = torch.ones(57)
        view = x.as_strided((5,), (1,), 0)
        with recoup.budget(
            "1MiB", spill="64MiB", options=recoup.Options(small_result_bytes=0)
        ) as run:
            (x + 1).sum()
            x.resize_(7288)
            run.check()
            assert x.fill_(1).sum().item() == 7288
            run.check()
        assert torch.equal(view, torch.ones(5))


@pytest.mark.parametrize("used", [True, False])
def test_a_replay_from_replaced_memory_is_an_error(used: bool) -> None:
    source = torch.linspace(1, 2, N)
    storage = source.untyped_storage()
    with recoup.budget("64MiB", options=recoup.Options(small_result_bytes=0)) as run:
        product, kept = source * 2, source * 3
        assert recoup.evict(product)
        RESIZE(storage, 8 * N)
        for _ in range(3):
            if used:
                with contextlib.suppress(RuntimeError):  # its memory is new, in the pool or outside
                    source.add(1)
            with pytest.raises(RuntimeError, match="memory of a tensor was replaced"):
                product.sum()
        assert torch.equal(kept, torch.linspace(1, 2, N) * 3)
        del product
        storage.fill_(0)
        assert source[0].item() == 0
        run.check()
