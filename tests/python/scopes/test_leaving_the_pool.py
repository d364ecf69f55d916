"""Storages whose address is given to Python code leave the pool: there they would fragment it."""

import gc
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import recoup

KIB = 1 << 10
N = 2000  # elements of a small array


def tanh_chain(arrays: int) -> tuple[list[Any], torch.Tensor]:
    """Small NumPy arrays, and ops on tensors of 4 MB."""
    torch.manual_seed(0)
    seen = [torch.randn(N).numpy() for _ in range(arrays)]
    x = torch.randn(1000, 1000, requires_grad=True)
    y = x
    for _ in range(8):
        y = torch.tanh(y)
    y.sum().backward()
    assert x.grad is not None
    return seen, x.grad


@pytest.mark.parametrize("arrays", [0, 10, 100])
def test_enough_bytes_is_no_more_than_the_unbudgeted_peak(arrays: int) -> None:
    plain = tanh_chain(arrays)
    with recoup.budget("8GiB") as unbudgeted:
        tanh_chain(arrays)
    apart = recoup.Options(reuse_operands=False)
    with pytest.raises(recoup.OutOfBudgetError) as caught:
        with recoup.budget(10_000_000, options=apart):
            tanh_chain(arrays)
    error = caught.value
    assert error.budget_bytes < error.next_bytes <= error.enough_bytes
    assert error.enough_bytes <= unbudgeted.stats().peak_bytes
    with recoup.budget(error.enough_bytes) as run:
        seen, gradient = tanh_chain(arrays)
    assert torch.equal(gradient, plain[1])
    assert all(map(np.array_equal, seen, plain[0]))
    assert run.stats().peak_bytes <= error.enough_bytes


def test_an_address_stays_valid_in_and_after_the_scope() -> None:
    with recoup.budget("1MiB") as run:
        x = torch.arange(N).float() * 2
        doubled = x * 2
        assert recoup.evict(doubled)
        array = x.numpy()
        array[0] = 7.0  # `doubled` was computed from the old content
        with recoup.pin(torch.ones(150 * KIB)):  # 600 KiB: memory is short
            pass
        address = x.data_ptr()
        assert address == array.ctypes.data
        assert doubled[0].item() == 0.0 and x[0].item() == 7.0
        run.check()
    assert x.data_ptr() == address and x[0].item() == 7.0
    del x
    assert array[1] == 2.0  # NumPy's array keeps the memory
    tensor = torch.from_numpy(array)
    with recoup.budget("1MiB") as run:
        assert (tensor + 1)[0].item() == 8.0
        run.check()


def test_an_escaped_storage_is_charged_until_it_dies() -> None:
    with recoup.budget("1MiB", options=recoup.Options(small_result_bytes=0)) as run:
        before = run.stats().resident_bytes
        x = torch.ones(N)
        x.numpy()
        assert run.stats().resident_bytes - before >= 4 * N
        assert run.stats().external_bytes >= 4 * N
        storage = weakref.ref(x.untyped_storage())
        del x
        gc.collect()
        assert storage() is None
        assert run.stats().resident_bytes == before
        for _ in range(1000):  # 8 MB in total
            torch.ones(N).numpy()
        assert run.stats().peak_bytes < 64 * KIB
        run.check()


def test_a_pinned_tensor_stays_in_the_pool() -> None:
    with recoup.budget("1MiB") as run:
        x = torch.ones(N)
        with recoup.pin(x):
            address = torch._C.TensorBase.const_data_ptr(x)  # type: ignore[attr-defined]
            array = x.numpy()
            assert array.ctypes.data == address
        assert run.stats().external_bytes == 0
        run.check()


def test_an_escaped_storage_can_be_resized_and_set_in_another_tensor() -> None:
    with recoup.budget("1MiB") as run:
        x, y = torch.ones(N), torch.zeros(N)
        x.data_ptr()
        y.set_(x.untyped_storage(), 0, (N,))  # type: ignore[call-overload]
        y.add_(1)
        assert x[0].item() == 2.0
        x.resize_(2 * N).fill_(3)
        assert y[-1].item() == 3.0
        other = torch.full((N,), 5.0)
        torch.utils.swap_tensors(x, other)
        assert x[0].item() == 5.0 and other[0].item() == 3.0
        run.check()


def test_escaped_storages_may_die_on_other_threads() -> None:
    def work(errors: list[BaseException]) -> None:
        try:
            for i in range(200):
                array = torch.full((N,), float(i)).numpy()
                assert array[-1] == i
        except BaseException as error:
            errors.append(error)

    errors: list[BaseException] = []
    with recoup.budget("2MiB") as run:
        kept = [torch.full((N,), float(i)) for i in range(20)]
        arrays = [each.numpy() for each in kept]
        workers = [threading.Thread(target=work, args=(errors,)) for _ in range(2)]
        for worker in workers:
            worker.start()
        while any(worker.is_alive() for worker in workers):
            if kept:
                kept.pop()
            sum((torch.ones(N) * i for i in range(20)), torch.zeros(N))
        for worker in workers:
            worker.join()
        run.check()
    assert not errors
    assert [array[0] for array in arrays] == list(map(float, range(20)))


def test_an_address_that_was_given_in_place_does_not_change() -> None:
    """The first address was requested while the tensor was pinned; the second is the same."""
    with recoup.budget("1MiB") as run:
        x = torch.arange(N).float() + 1
        with recoup.pin(x):
            first = x.numpy()
        second = x.numpy()
        second[0] = 100.0
        x.add_(1)
        assert first.ctypes.data == second.ctypes.data == x.data_ptr()
        assert first[:2].tolist() == [101.0, 3.0]
        run.check()


def test_an_address_that_was_given_by_an_op_does_not_change() -> None:
    seen: list[np.ndarray[Any, Any]] = []

    @torch.library.custom_op("leaving::look", mutates_args=())  # type: ignore[misc]
    def look(x: torch.Tensor) -> torch.Tensor:
        seen.append(x.numpy())
        return x + 1

    with recoup.budget("1MiB") as run:
        x = torch.arange(N).float() + 1
        look(x)
        again = x.numpy()
        x.add_(1)
        assert seen[0].ctypes.data == again.ctypes.data
        assert seen[0][0] == again[0] == 2.0
        run.check()


@pytest.mark.parametrize("how", ["tensor", "storage", "nothing"])
def test_the_last_reference_to_an_escaped_storage_may_end_within_an_op(how: str) -> None:
    with recoup.budget("1MiB") as run:
        x, other = torch.ones(N), torch.full((N,), 5.0)
        x.data_ptr()
        if how == "tensor":
            x.set_(other)  # type: ignore[call-overload]
        elif how == "storage":
            x.set_(other.untyped_storage())  # type: ignore[call-overload]
        else:
            x.set_()  # type: ignore[call-overload]
        assert x.numel() == (0 if how == "nothing" else N)
        assert x.sum().item() == (0 if how == "nothing" else 5 * N)
        run.check()


def test_a_trace_with_views_of_an_escaped_storage_is_readable(tmp_path: Path) -> None:
    with recoup.trace(tmp_path / "run.rtrace"):
        x = torch.arange(N).float() + 1
        y = x + torch.from_numpy(x.numpy())
        y += x + torch.from_dlpack(x)
        x.copy_(torch.from_numpy(x.numpy()))
        assert y[1].item() == 8.0
    recoup.Trace.read(tmp_path / "run.rtrace").simulate(1 << 20)
