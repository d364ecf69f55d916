"""Budgets on a GPU: work of the engine on one stream, whose results another stream uses.

The program orders its own ops by events, which it records before the engine submits more work. Each
check fails when one wait of the engine is missing: see tests/cuda_stand_in/mutate.py.
"""

import ctypes
from typing import Any

import torch
from torch import Tensor

import recoup
from gpu_context import KIB, MIB, check, here, same, with_outside


def made_again(x: Tensor) -> None:
    """Rematerializes `x` on the current stream."""
    assert recoup.evict(x)
    recoup.materialize(x)


def own_stream() -> Any:
    return torch.accelerator.current_stream(here.device)


@check
def a_new_stream_waits_for_replayed_values() -> None:
    want = torch.full((256 * KIB,), 3.0)
    with recoup.budget(with_outside(32 * MIB), device=here.device) as run:
        x = torch.full((256 * KIB,), 3.0, device=here.device)
        copy = torch.zeros_like(x)
        ready = own_stream().record_event()
        made_again(x)
        side = torch.Stream(device=here.device)
        side.wait_event(ready)
        with side:
            copy.copy_(x)
        own_stream().wait_event(side.record_event())
        assert same(copy, want)
        run.check()


@check
def a_known_stream_waits_for_replayed_values() -> None:
    """The stream is known from an op's use of it, or from record_stream before the op."""
    want = torch.full((256 * KIB,), 3.0)
    with recoup.budget(with_outside(32 * MIB), device=here.device) as run:
        x = torch.full((256 * KIB,), 3.0, device=here.device)
        copy = torch.zeros_like(x)
        side = torch.Stream(device=here.device)
        for recorded_first in (False, True):
            side.wait_event(own_stream().record_event())
            with side:
                copy.zero_()
            made_again(x)
            if recorded_first:
                x.record_stream(side)
            with side:
                copy.copy_(x)
            own_stream().wait_event(side.record_event())
            assert same(copy, want)
        run.check()


@check
def a_value_spilled_just_before_is_fetched() -> None:
    """The value is fetched into another block than the one that the copy to the tier read."""
    with recoup.budget(with_outside(32 * MIB), device=here.device, spill="64MiB") as run:
        for i in range(8):
            want = torch.full((256 * KIB,), float(i))
            x = want.to(here.device)  # an input from the host is non-recomputable
            assert recoup.evict(x)
            in_its_place = torch.zeros(256 * KIB, device=here.device)
            copy = x.clone()
            assert same(copy, want), i
            assert same(in_its_place, torch.zeros(256 * KIB))
        run.check()
    assert run.stats().fetches >= 8


@check
def inputs_of_replays_are_overwritten_after_them() -> None:
    """The replays read memory from outside; the program used it only on the writing stream."""
    x = torch.full((MIB,), 1.0, device=here.device)
    copies = [torch.zeros_like(x) for _ in range(2)]
    with recoup.budget(with_outside(64 * MIB), device=here.device) as run:
        sides = [torch.Stream(device=here.device) for _ in copies]
        made = [x.clone() for _ in copies]
        ready = own_stream().record_event()
        for side, y, copy in zip(sides, made, copies, strict=True):
            assert recoup.evict(y)
            side.wait_event(ready)
            with side:
                copy.copy_(y)
        x.add_(1)
        for side in sides:
            own_stream().wait_event(side.record_event())
        assert run.stats().replays == 2
        assert all(same(copy, torch.full((MIB,), 1.0)) for copy in copies)
        assert same(x, torch.full((MIB,), 2.0))
        run.check()


@check
def an_allocation_is_ordered_on_the_requesting_stream() -> None:
    """A copy that PyTorch does not see, on another stream than the stream of the replay."""
    runtime = ctypes.CDLL(f"libcudart.so.{str(torch.version.cuda).split('.')[0]}")
    with recoup.budget(with_outside(32 * MIB), device=here.device):
        for ask in (Tensor.data_ptr, address_of_pinned, address_of_present):
            x = torch.full((256 * KIB,), 3.0, device=here.device)
            copy = torch.zeros_like(x)
            target = copy.data_ptr()
            side = torch.Stream(device=here.device)
            side.wait_event(own_stream().record_event())
            made_again(x)
            with side:
                words = (target, ask(x), x.nbytes)
                memory = (ctypes.c_void_p(word) for word in words)
                stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
                assert runtime.cudaMemcpyAsync(*memory, 3, stream) == 0  # from device to device
            own_stream().wait_event(side.record_event())
            assert same(copy, torch.full((256 * KIB,), 3.0))


def address_of_pinned(x: Tensor) -> int:
    with recoup.pin(x):
        return int(x.__cuda_array_interface__["data"][0])


def address_of_present(x: Tensor) -> int:
    recoup.materialize(x)
    return int(x.__cuda_array_interface__["data"][0])


@check
def memory_of_a_left_scope_is_freed_after_its_kernels() -> None:
    """The program lets go of a tensor while another stream still has to read it."""
    total = torch.zeros(4 * MIB, device=here.device)
    with recoup.budget(with_outside(64 * MIB), device=here.device):
        x = torch.arange(4 * MIB, device=here.device, dtype=torch.float32).remainder(1000)
    side = torch.Stream(device=here.device)
    side.wait_stream(own_stream())
    with side:
        for _ in range(5):
            total.add_(x)
    del x
    own_stream().wait_stream(side)
    assert same(total, torch.arange(4 * MIB, dtype=torch.float32).remainder(1000) * 5)
