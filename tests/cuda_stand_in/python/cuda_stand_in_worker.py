"""Runs one check of the stand-in for CUDA in a new process: see test_cuda_stand_in.py."""

import ctypes
import multiprocessing
import os
import sys
from collections.abc import Callable
from typing import Any

import cuda_stand_in_graphs  # noqa: F401
import recoup_cuda_stand_in as stand_in
import torch
import torch.nn.functional as F
from cuda_stand_in_check import CHECKS, check
from torch import Tensor, nn

import recoup

OUT_OF_MEMORY = 2  # cudaErrorMemoryAllocation


# ---- values ----
def program(device: str) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)

    def numbers(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device)

    a, b = numbers(64, 64), numbers(64, 64)
    index = torch.arange(64, device=device)
    made = [a @ b, torch.addmm(b[0], a, b), torch.bmm(numbers(3, 4, 5), numbers(3, 5, 6))]
    made += [a.sin() * 2, a.sum(), a.sum(1), a.softmax(-1), F.layer_norm(a, (64,)), a.var(0)]
    made += [a.cumsum(0), a.sort(0)[0], a.topk(3)[0], a.half(), a.t().contiguous(), a[:, ::2] + 1]
    made += [torch.cat([a, b], 1), a.nonzero(), a[a > 0], a[[1, 2, 3]], F.gelu(a), a.argmax(1)]
    made += [torch.where(a > 0, a, b), F.cross_entropy(a, index % 64)]
    made += [F.conv2d(numbers(2, 4, 8, 8), numbers(4, 1, 3, 3), padding=1, groups=4)]
    c = a.clone()
    c.add_(1).mul_(b)
    c[3:5] = 0
    c.index_add_(0, torch.tensor([1, 1], device=device), b[:2])
    made.append(c)
    q = numbers(2, 2, 8, 16).requires_grad_()
    attended = F.scaled_dot_product_attention(q, q, q)
    attended.sum().backward()  # type: ignore[no-untyped-call]
    return [*made, attended, q.grad, *train(device, generator)]  # type: ignore[list-item]


def train(device: str, generator: torch.Generator) -> list[Tensor]:
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 64))
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator)
    model = model.to(device)
    x = torch.randn(64, 64, generator=generator).to(device)
    made = []
    for together in (False, True):
        optimizer = torch.optim.AdamW(model.parameters(), foreach=together)
        for _ in range(3):
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        made.append(loss.detach())
    return [*made, *(parameter.detach() for parameter in model.parameters())]


@check
def kernels() -> None:
    """The kernels are those of the CPU and give the same bits."""
    for ours, theirs in zip(program("cuda"), program("cpu"), strict=True):
        assert torch.equal(ours.detach().cpu(), theirs.detach()), (ours, theirs)
    torch.manual_seed(0)
    first = torch.randn(5, device="cuda")
    assert not torch.equal(first, torch.randn(5, device="cuda"))
    torch.manual_seed(0)
    assert torch.equal(first, torch.randn(5, device="cuda"))
    assert not stand_in.kernel_failures(), stand_in.kernel_failures()
    assert stand_in.races() == 0


# ---- memory ----
@check
def host_reads_device() -> None:
    x = torch.ones(10, device="cuda")
    torch.cuda.synchronize()
    ctypes.c_float.from_address(x.data_ptr()).value  # noqa: B018


@check
def fresh_memory_is_poisoned() -> None:
    assert torch.empty(100, dtype=torch.uint8, device="cuda").tolist() == [0xFE] * 100


@check
def memory_is_limited() -> None:
    _, total = torch.cuda.mem_get_info()
    try:
        torch.empty(total + 1, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        assert "Tried to allocate" in str(error)
    else:
        raise AssertionError("more memory than the device has")
    before = stand_in.used_bytes()
    x = torch.empty(total // 2, dtype=torch.uint8, device="cuda")
    assert stand_in.used_bytes() == before + total // 2
    del x
    torch.cuda.empty_cache()
    assert stand_in.used_bytes() == before


# ---- order ----
def on_another_stream(wait: bool) -> None:
    side: Any = torch.cuda.Stream()
    x = torch.ones(1000, device="cuda")
    if wait:
        side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = x + 1
    side.synchronize()
    assert y is not None


@check
def missing_wait() -> None:
    on_another_stream(wait=False)
    assert stand_in.races() > 0


@check
def present_wait() -> None:
    on_another_stream(wait=True)
    assert stand_in.races() == 0


def used_and_freed(record: bool) -> None:
    side: Any = torch.cuda.Stream()
    x = torch.ones(1000, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = x + 1
    if record:
        x.record_stream(side)
    del x
    z = torch.zeros(1000, device="cuda")
    torch.cuda.synchronize()
    assert y is not None and z is not None


@check
def missing_record_stream() -> None:
    used_and_freed(record=False)
    assert stand_in.races() > 0


@check
def present_record_stream() -> None:
    used_and_freed(record=True)
    assert stand_in.races() == 0


class Driver:
    """Virtual memory of the driver, whose calls do not wait for the device."""

    SIZE = 2 << 20

    def __init__(self) -> None:
        torch.cuda.init()
        self.library = ctypes.CDLL("libcuda.so.1")
        self.address = ctypes.c_uint64()
        handle = ctypes.c_uint64()
        # A CUmemAllocationProp: memory on device 0.
        memory = (ctypes.c_int * 32)(1, 0, 1, 0)
        size = ctypes.c_size_t(self.SIZE)
        reserve, create = self.library.cuMemAddressReserve, self.library.cuMemCreate
        zero = ctypes.c_uint64(0)
        assert reserve(ctypes.byref(self.address), size, zero, zero, zero) == 0
        assert create(ctypes.byref(handle), size, ctypes.byref(memory), zero) == 0
        assert self.library.cuMemMap(self.address, size, zero, handle, zero) == 0

    def fill(self) -> None:
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        size = ctypes.c_size_t(self.SIZE)
        assert stand_in.runtime().cudaMemsetAsync(self.address, 0, size, stream) == 0

    def unmap(self) -> None:
        assert self.library.cuMemUnmap(self.address, ctypes.c_size_t(self.SIZE)) == 0


@check
def unmapped_in_use() -> None:
    driver = Driver()
    driver.fill()
    driver.unmap()
    assert stand_in.races() == 1


@check
def freed_in_use() -> None:
    driver = Driver()
    torch.cuda.current_stream().synchronize()
    for _ in range(100):  # the device has not run all of them yet
        driver.fill()
    driver.unmap()
    try:
        torch.cuda.synchronize()
    except RuntimeError as error:
        assert "illegal memory access" in str(error)
    else:
        raise AssertionError("nothing has failed")


@check
def work_is_late() -> None:
    """Most of the queued work has not begun while no thread waits for it."""
    x = torch.zeros(1000, device="cuda")
    torch.cuda.synchronize()
    event = torch.cuda.Event()
    for _ in range(200):
        x.add_(1)
    event.record()
    assert not event.query()
    assert x.tolist() == [200] * 1000
    assert event.query()


# ---- errors ----
@check
def an_error_arrives() -> None:
    stand_in.fail("cudaMalloc", 1, OUT_OF_MEMORY)
    before = stand_in.calls("cudaMalloc")
    x = torch.ones(64 << 20, dtype=torch.uint8, device="cuda")  # PyTorch tries twice
    assert stand_in.calls("cudaMalloc") == before + 2
    for call in (1, 2):
        stand_in.fail("cudaMalloc", call, OUT_OF_MEMORY)
    try:
        torch.ones(64 << 20, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        pass
    else:
        raise AssertionError("no error")
    assert x[0].item() == 1


@check
def the_first_allocation_fails() -> None:
    before = stand_in.calls("cudaMalloc")
    x = torch.ones(10, device="cuda")
    assert before == 0 and stand_in.calls("cudaMalloc") == 2 and x.tolist() == [1] * 10


# ---- other functions ----
@check
def two_devices() -> None:
    assert torch.cuda.device_count() == 2
    x = torch.arange(1000.0, device="cuda:0")
    y = x.to("cuda:1") * 2
    assert torch.equal(y.cpu(), torch.arange(1000.0) * 2)
    assert stand_in.used_bytes(1) > 0 and stand_in.races() == 0


@check
def launches_are_recorded() -> None:
    x = torch.ones(10, device="cuda")
    before = stand_in.counters()["launches"]
    x.sin_()
    assert stand_in.counters()["launches"] == before + 1
    assert any("sin_kernel" in name for name in stand_in.launches()), stand_in.launches()


@check
def functions_of_pytorch_2_15() -> None:
    torch.cuda.init()
    runtime, driver = stand_in.runtime(), ctypes.CDLL("libcuda.so.1")
    before = stand_in.pinned_bytes()
    pinned = ctypes.c_void_p()
    assert runtime.cudaMallocHost(ctypes.byref(pinned), ctypes.c_size_t(1 << 20)) == 0
    assert stand_in.pinned_bytes() - before == 1 << 20
    assert runtime.cudaFreeHost(pinned) == 0 and stand_in.pinned_bytes() == before

    context, other = ctypes.c_void_p(), ctypes.c_void_p()
    for device, found in ((0, context), (1, other)):
        stream: Any = torch.cuda.Stream(device)
        handle = ctypes.c_void_p(stream.cuda_stream)
        assert driver.cuStreamGetCtx(handle, ctypes.byref(found)) == 0
    assert context.value != other.value

    x = torch.zeros(1000, device="cuda")
    x + 1
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        y = x + 1
    made = ctypes.c_void_p()
    captured = ctypes.c_void_p(graph.raw_cuda_graph())
    assert runtime.cudaGraphInstantiate(ctypes.byref(made), captured, ctypes.c_ulonglong(0)) == 0
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    x.fill_(3)
    assert runtime.cudaGraphLaunch(made, stream) == 0
    assert y.tolist() == [4] * 1000


# ---- processes ----
def in_child(function: Callable[[], None]) -> None:
    """Runs `function` in a fork of this process, which must exit with success."""
    process = os.fork()
    if process == 0:
        try:
            function()
            os._exit(0)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
    _, status = os.waitpid(process, 0)
    assert status == 0


def refused(function: Callable[[], Any]) -> None:
    try:
        function()
    except RuntimeError as error:
        assert "forked after CUDA was initialized cannot use it: start it with spawn" in str(
            error
        ), error
    else:
        raise AssertionError("it was not refused")


def sines(device: str | None) -> float:
    with recoup.budget("64MiB", device=device):
        return torch.arange(1000.0, device=device or "cpu").sin().sum().item()


@check
def a_forked_child_has_no_gpu() -> None:
    """The child gets an error, also within its parent's budget. It may open a budget on the CPU."""
    want = sines(None)
    x = torch.ones(1000, device="cuda")

    def child() -> None:
        refused(lambda: sines("cuda:0"))
        assert sines(None) == want

    in_child(child)
    with recoup.budget("64MiB", device="cuda:0"):
        y = x.sin()

        def child_of_a_scope() -> None:
            child()
            refused(y.cos)

        in_child(child_of_a_scope)
        assert torch.equal(y, x.sin())


@check
def a_child_forked_before_cuda_has_a_gpu() -> None:
    import recoup.gpus

    assert recoup.gpus.problem() is None  # this does not call the driver
    in_child(lambda: print(sines("cuda:0")))
    assert sines("cuda:0") == sines(None)


@check
def a_spawned_child_has_a_gpu() -> None:
    want = sines("cuda:0")
    with (
        recoup.budget("64MiB", device="cuda:0"),
        multiprocessing.get_context("spawn").Pool(1) as pool,
    ):
        assert pool.apply(sines, ("cuda:0",)) == want


if __name__ == "__main__":
    CHECKS[sys.argv[1]]()
