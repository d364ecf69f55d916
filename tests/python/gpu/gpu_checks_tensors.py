"""Budgets on a GPU while other devices are used, operations on tensors, and accounting."""

import gc
import threading
from contextlib import ExitStack, suppress

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import recoup
from gpu_context import (
    KIB,
    MIB,
    assert_same,
    check,
    empty_cache,
    here,
    same,
    synchronize,
    used_bytes,
    with_outside,
)


# ---- other devices ----
@check
def budgets_on_several_devices() -> None:
    """Budgets on the CPU and on one or two GPUs, at the same time."""
    count = torch.accelerator.device_count()
    others = [torch.device(here.device.type, index) for index in range(min(count, 2))]

    def program() -> list[Tensor]:
        torch.manual_seed(0)
        made = []
        for on in (torch.device("cpu"), *others):
            x = torch.randn(64 * KIB, device=on)
            chain_ = [x]
            for _ in range(40):
                chain_.append(torch.sin(chain_[-1]) * 1.01)
            made += chain_[::8]
            del chain_[:]
        # Copies from one device to another and back, and an op on both.
        x = made[0]
        for on in (*others, torch.device("cpu")):
            x = x.to(on) + 1
            made.append(x)
        made.append(others[0].type and made[-1].to(others[0]) * torch.tensor(1.5))
        return [m.cpu() for m in made]

    plain = program()
    with ExitStack() as stack:
        runs = [
            stack.enter_context(recoup.budget(8 * MIB, device=on))
            for on in (torch.device("cpu"), *others)
        ]
        ours = program()
        for run in runs:
            run.check()
    assert_same(ours, plain)
    for run in runs:
        assert run.stats().evictions > 0, run.device
        assert run.stats().peak_bytes <= 8 * MIB


@check
def the_other_device_is_unchanged() -> None:
    with recoup.budget(8 * MIB, device=here.device) as run:
        x = [torch.randn(MIB) for _ in range(20)]  # 80 MiB of CPU tensors
        y = sum(x)
    assert run.stats().op_count == 0
    with recoup.budget(8 * MIB, device="cpu") as run:
        z = torch.ones(4 * MIB, device=here.device)
        z = z.sin().cos()
    assert run.stats().peak_bytes < MIB
    assert float(z[0].cpu()) == float(torch.ones(()).sin().cos())
    assert y.shape == (MIB,)


@check
def an_op_with_a_scalar_of_the_cpu_is_replayed() -> None:
    with recoup.budget(16 * MIB, device=here.device) as run:
        x = torch.arange(256 * KIB, device=here.device, dtype=torch.float32)
        scale = torch.tensor(3.0)
        y = x * scale
        z = torch.where(x > 5, x, scale)
        scale.fill_(7.0)  # after y and z have read the scalar
        assert recoup.evict(y)
        assert recoup.evict(z)
        want = torch.arange(256 * KIB, dtype=torch.float32)
        assert same(y, want * 3)
        assert same(z, torch.where(want > 5, want, torch.tensor(3.0)))
    assert run.stats().replays >= 2


@check
def a_device_without_an_index_is_the_current_one() -> None:
    with recoup.budget(64 * MIB, device=here.device) as run:
        made = [torch.full((MIB,), float(i), device=here.device.type) for i in range(12)]
        assert all(recoup.evict(x) for x in made)
        assert float(made[7].sum().cpu()) == 7 * MIB
    assert run.stats().evictions >= 12


@check
def costs_are_learned() -> None:
    if here.fake is None:
        print("events are counted on the test device only")
        return
    before = here.fake.events()
    with recoup.budget(64 * MIB, device=here.device) as run:
        x = torch.ones(64 * KIB, device=here.device)
        for i in range(1000):
            y = x + i
            if i % 50 == 0:
                synchronize()
        assert here.fake.events() < before + 300, here.fake.events() - before
        # Each task of the test device takes one microsecond.
        assert 1000 * 1000 <= run.stats().op_ns <= 1100 * 2500, run.stats().op_ns
    assert y is not None


@check
def the_switch_of_cudnn_is_restored() -> None:
    with recoup.budget(64 * MIB, device=here.device) as run:
        x = torch.randn(4, 8, 32, 32, device=here.device)
        w = torch.randn(8, 8, 3, 3, device=here.device)
        with torch.backends.cudnn.flags(enabled=False, deterministic=True):
            y = F.conv2d(x, w)
            want = y.cpu()
        assert recoup.evict(y)
        torch.backends.cudnn.enabled = True
        assert same(y, want)
        assert torch.backends.cudnn.enabled
    assert run.stats().replays == 1


@check
def autocast_within_an_op() -> None:
    """Within an op that autocast does not know, the ops that it calls are cast."""
    with recoup.budget(64 * MIB, device=here.device) as run:
        torch.manual_seed(0)
        model = nn.Bilinear(64, 64, 64).to(here.device)
        x = torch.rand(64, 64, device=here.device)
        with torch.autocast(here.device.type, torch.bfloat16):
            y = model(x, x)
        want = y.detach().cpu()
        assert recoup.evict(y)
        assert same(y, want)
    assert run.stats().replays > 0


@check
def values_restored_at_the_exit_are_ready_on_any_stream() -> None:
    for _ in range(10):
        other = torch.Stream(device=here.device)
        with recoup.budget(
            with_outside(4 * MIB), device=here.device, options=recoup.Options(small_result_bytes=0)
        ):
            with other:
                x = torch.full((64 * KIB,), 1.0, device=here.device)
                keep = [x * (i + 2) for i in range(14)]
                keep += [x[: 16 * KIB] * (i + 16) for i in range(3)]
            for y in keep[:6]:
                recoup.evict(y)
        with other:
            copies = [y.clone() for y in keep]
        synchronize()
        for i, y in enumerate(copies):
            assert bool((y.cpu() == i + 2).all()), i
        del copies, keep, x, y


@check
def memory_read_by_a_replay_is_not_reused_before_it() -> None:
    """Memory from outside is read on another stream than its own, and freed before that read.

    The reads are copies, because of the test device's kernels only copies read late.
    """
    own = torch.accelerator.current_stream(here.device)

    def overwrite() -> None:
        made.append(torch.full((MIB,), 100.0, device=here.device))

    for _ in range(5):
        side = torch.Stream(device=here.device)
        made: list[Tensor] = []
        empty_cache()
        x = torch.ones(MIB, device=here.device)
        copy = torch.zeros_like(x)
        with recoup.budget(with_outside(32 * MIB), device=here.device) as run:
            y = x.clone()
            assert recoup.evict(y)
            side.wait_event(own.record_event())
            with side:
                copy.copy_(y)
            assert run.stats().replays > 0
            del x, y
            run.mark_step()  # frees values that no tensor refers to
            stranger = threading.Thread(target=overwrite)
            stranger.start()
            stranger.join()
            synchronize()
            assert bool((copy.cpu() == 1).all())


@check
def memory_of_other_owners_is_not_freed() -> None:
    x = torch.ones(64 * KIB, device=here.device)
    storage = torch._C._construct_storage_from_data_pointer(
        x.data_ptr() + KIB, here.device, 4 * KIB
    )
    typed = torch.storage.TypedStorage(wrap_storage=storage, dtype=torch.float32, _internal=True)
    y = torch.tensor([], dtype=torch.float32, device=here.device).set_(typed)
    y.record_stream(torch.Stream(device=here.device))
    with recoup.budget(64 * MIB, device=here.device):
        y.record_stream(torch.Stream(device=here.device))
        assert float((y * 2).sum().cpu()) == 2 * KIB


# ---- operations of users on tensors ----
@check
def pins_escapes_and_eviction_requests() -> None:
    with recoup.budget(16 * MIB, device=here.device) as run:
        x = torch.randn(256 * KIB, device=here.device)
        y = x.sin()
        want = y.cpu()
        assert recoup.is_resident(y) and recoup.evict(y) and not recoup.is_resident(y)
        recoup.materialize(y)
        assert recoup.is_resident(y)
        with recoup.pin(y):
            assert not recoup.evict(y)
        assert recoup.evict(y)
        address = y.data_ptr()  # an escape: the tensor becomes resident and immovable
        assert recoup.is_resident(y) and not recoup.evict(y)
        assert y.data_ptr() == address
        assert same(y, want)
        run.check()
    assert run.stats().escapes == 1


@check
def a_backward_hook_reads_a_tensor() -> None:
    """The backward pass of a GPU runs on a thread of autograd, which belongs to the scope, too."""
    seen = []
    with recoup.budget(32 * MIB, device=here.device):
        x = torch.randn(256 * KIB, device=here.device, requires_grad=True)
        y = x.sin()
        other = x.detach().cos()
        want = other.cpu()

        def hook(gradient: Tensor) -> None:
            assert recoup.evict(other)
            recoup.materialize(other)
            assert recoup.evict(other)
            seen.append(other.data_ptr() != 0 and same(other, want))

        y.register_hook(hook)
        y.sum().backward()
    assert seen == [True]


@check
def tensors_outlive_the_scope() -> None:
    before = used_bytes()
    with recoup.budget(32 * MIB, device=here.device):
        x = torch.randn(256 * KIB, device=here.device)
        y = [x.sin() * i for i in range(40)]
        keep = [y[3], y[20]]
        del y
    want = [x.cpu().sin() * 3, x.cpu().sin() * 20]
    assert_close = torch.testing.assert_close
    for a, b in zip(keep, want, strict=True):
        assert_close(a.cpu(), b)
    # They are inputs of the next scope, like any tensors from outside.
    with recoup.budget(16 * MIB, device=here.device) as run:
        z = [keep[0] * i + x for i in range(30)]
        keep += z[::7]
        run.check()
        del z
    assert run.stats().evictions > 0
    assert same(keep[-1], keep[0].cpu() * 28 + x.cpu())
    del keep, x, a
    gc.collect()
    empty_cache()
    assert used_bytes() <= before, f"{used_bytes()} against {before}"


@check
def frees_on_other_threads() -> None:
    made: list[Tensor] = []
    with recoup.budget(64 * MIB, device=here.device) as run:
        x = torch.randn(64 * KIB, device=here.device)
        stop = threading.Event()

        def free() -> None:
            while not stop.is_set() or made:
                with suppress(IndexError):
                    made.pop()

        threads = [threading.Thread(target=free) for _ in range(2)]
        for thread in threads:
            thread.start()
        for i in range(400):
            made.append(x * i)
        stop.set()
        for thread in threads:
            thread.join()
        run.check()
    assert same(x.sin(), x.cpu().to(here.device).sin())


@check
def the_driver_gives_no_more_than_the_budget() -> None:
    made_before = torch.ones(3 * MIB, device=here.device)
    gc.collect()
    empty_cache()
    synchronize()
    # Memory of CUDA itself, and of other processes.
    before = used_bytes() - recoup._C.gpu_memory(here.device.index or 0)["outside_bytes"]
    budget = 48 * MIB
    most = 0
    with recoup.budget(budget, device=here.device) as run:
        torch.manual_seed(0)
        made = [torch.randn(256 * KIB, device=here.device)]
        for _ in range(60):
            made.append(made[-1].sin() + made_before[: 256 * KIB])
            most = max(most, used_bytes())
        del made[:-1]
    assert run.stats().evictions > 0
    assert most <= before + budget, f"{most - before} of {budget}"


@check
def memory_is_counted() -> None:
    """In budgets and outside of them."""

    def counts() -> tuple[int, int]:
        memory = recoup._C.gpu_memory(here.device.index)
        return memory["used_bytes"], memory["reserved_bytes"]

    gc.collect()
    empty_cache()
    before, reserved = counts()
    x = torch.ones(MIB, device=here.device)
    assert counts()[0] == before + 4 * MIB
    del x
    assert counts()[0] == before
    with recoup.budget(32 * MIB, device=here.device):
        held = counts()[0] - before  # the staging buffer of moves
        y = torch.ones(MIB, device=here.device)
        assert counts()[0] == before + held + 4 * MIB
        assert reserved < counts()[1] <= max(32 * MIB, reserved)
    assert counts()[0] == before + 4 * MIB
    del y
    assert counts()[0] == before


@check
def pytorchs_allocator_is_restored() -> None:
    """Before the first budget, and after the last memory of any budget is freed."""
    if here.fake is None:
        return
    outside = torch.ones(MIB, device=here.device)
    assert here.fake.undecorated()
    with recoup.budget(32 * MIB, device=here.device):
        x = outside + 1
        assert not here.fake.undecorated()
        raw = here.fake.raw_alloc(8)
        before = recoup._C.gpu_memory(here.device.index)["outside_bytes"]
        grown = torch.ones(2 * MIB, device=here.device)
        assert recoup._C.gpu_memory(here.device.index)["outside_bytes"] == before
        del grown
    gc.collect()
    assert not here.fake.undecorated()
    del outside
    assert same(x.sin(), torch.full((MIB,), 2.0).sin())
    here.fake.raw_delete(raw)
    assert not here.fake.undecorated()
    del x
    gc.collect()
    assert here.fake.undecorated()


@check
def storages_that_grow_in_a_scope_grow_in_the_budget() -> None:
    """Including a storage from outside, which keeps the allocator that made it."""
    x = torch.ones(256 * KIB, device=here.device)
    with recoup.budget(64 * MIB, device=here.device) as run:
        before = recoup._C.gpu_memory(here.device.index)["outside_bytes"]
        y = x + 1
        x.resize_(4 * MIB)
        assert recoup._C.gpu_memory(here.device.index)["outside_bytes"] == before
        x[256 * KIB :] = 1
        run.check()
    assert same(x, torch.ones(4 * MIB)) and same(y, torch.full((256 * KIB,), 2.0))
    x.resize_(8 * MIB)  # the storage calls its allocator after the scope, too
    assert same(x[: 4 * MIB], torch.ones(4 * MIB))
