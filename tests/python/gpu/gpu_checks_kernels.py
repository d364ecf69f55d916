"""Budgets on a GPU: ops whose kernels or arguments exist only on devices."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import recoup
from gpu_context import (
    MIB,
    assert_same,
    chain,
    check,
    here,
    message,
    same,
    stand_in_lacks,
    step,
    with_outside,
)
from recoup._memory.device_memory import free_bytes
from recoup.bench.flat_options import split

ALLOCATED = "allocation.all.allocated"
"""A count of PyTorch's allocator."""


@check
def weights_are_flattened_in_a_scope() -> None:
    """The kernel gives the weights a new storage and frees their old ones."""
    if stand_in_lacks("cuDNN"):
        return

    def program() -> list[Tensor]:
        torch.manual_seed(0)
        net = torch.nn.LSTM(64, 64, num_layers=3).to(here.device)
        weights = net._flat_weights
        with torch.no_grad():
            torch._cudnn_rnn_flatten_weight(weights, 4, 64, 2, 64, 0, 3, False, False)
        x = torch.randn(32, 64, device=here.device)
        for _ in range(4):
            for weight in weights:
                if weight.dim() == 2:  # type: ignore[union-attr]
                    x = (x @ weight.t()).tanh().sum(1, keepdim=True) + x  # type: ignore[union-attr]
        x.square().mean().backward()
        return [x.detach().cpu()] + [
            tensor.detach().cpu()
            for weight in weights
            for tensor in (weight, weight.grad)  # type: ignore[union-attr]
            if tensor is not None
        ]

    plain = program()
    for size in (64, 6):
        with recoup.budget(with_outside(size * MIB), device=here.device) as run:
            ours = program()
        run.check()
        assert_same(ours, plain)


@check
def arguments_that_are_no_tensor() -> None:
    """A non-tensor result of an op is an argument of another op, which is replayed."""
    if stand_in_lacks("fused attention"):
        return

    def program() -> list[Tensor]:
        torch.manual_seed(0)
        q, k, v = (torch.randn(2, 4, 64, 64, device=here.device).to(kind) for _ in range(3))
        out, sums, bounds_q, bounds_k, *lengths, seed, offset, _ = attention(q, k, v, 0.0, True)
        grads = [
            backward(
                out * i, q, k, v, out, sums, bounds_q, bounds_k, *lengths, 0.0, True, seed, offset
            )
            for i in range(40)
        ]
        return [each.cpu() for three in grads for each in three]

    kind = torch.float32 if here.fake is not None else torch.bfloat16
    attention = torch.ops.aten._scaled_dot_product_flash_attention
    backward = torch.ops.aten._scaled_dot_product_flash_attention_backward
    torch.use_deterministic_algorithms(True)
    plain = program()
    with recoup.budget(with_outside(8 * MIB), device=here.device) as run:
        ours = program()
    assert run.stats().replays > 0
    assert_same(ours, plain)


@check
def results_on_the_cpu() -> None:
    """Efficient attention returns its seed on the CPU. Its other results are evicted."""
    if stand_in_lacks("fused attention"):
        return
    shape = (2, 8, 128, 64)

    def program(dropout: float, biased: bool, run: recoup.Run | None = None) -> list[Tensor]:
        torch.manual_seed(0)
        q, k, v = (torch.randn(shape, device=here.device).to(kind) for _ in range(3))
        bias = torch.zeros(2, 8, 128, 128, device=here.device, dtype=kind) if biased else None
        made = [q]
        for _ in range(8):
            q = made[-1]
            x, sums, seed, offset = attention(q, k, v, bias, True, dropout, not biased)
            made.append(x)
        if run is not None:
            assert run.stats().resident_bytes < 6 * x.nbytes, run.stats().resident_bytes / x.nbytes
        wanted = [True, True, True, biased]
        grads = backward(x, q, k, v, bias, x, sums, seed, offset, dropout, wanted, not biased)
        return [each.cpu() for each in (*made, seed, offset, *grads) if each is not None]

    kind = torch.float32 if here.fake is not None else torch.bfloat16
    attention = torch.ops.aten._scaled_dot_product_efficient_attention
    backward = torch.ops.aten._scaled_dot_product_efficient_attention_backward
    torch.use_deterministic_algorithms(True)
    options: dict[str, Any] = {"evict_after_op": True, "check_replays": True}
    for dropout in (0.0, 0.3):
        for biased in (False, True):
            plain = program(dropout, biased)
            with recoup.budget(with_outside(64 * MIB), device=here.device, **split(options)) as run:
                ours = program(dropout, biased, run)
            assert run.stats().replays > 0
            assert_same(ours, plain)


def assert_same_when_short(program: Callable[[], list[Tensor]], plain: list[Tensor]) -> None:
    """Runs in less and less memory until it is out of budget; at least one budget needs replays.

    The workspaces of kernels differ by device, so no fixed fraction of the peak suits all devices.
    """
    # A larger budget would reserve more for moves.
    ample = min(free_bytes(here.device) // 4, 1 << 30)
    with recoup.budget(ample, device=here.device) as run:
        assert_same(program(), plain)
    stats = run.stats()
    room = stats.peak_bytes - stats.external_bytes
    replays, text = 0, ""
    for percent in range(90, 20, -10):
        try:
            with recoup.budget(with_outside(room * percent // 100), device=here.device) as run:
                assert_same(program(), plain)
        except recoup.OutOfBudgetError as error:
            text = f"in {percent} % of {room / MIB:.1f} MiB: {error}"
            break
        run.check()
        replays += run.stats().replays
    assert replays > 0, text


def outside_allocations() -> int:
    """The number of allocations of PyTorch's own allocator so far; 0 if it does not count them."""
    return int(torch.cuda.memory_stats(here.device)[ALLOCATED]) if here.fake is None else 0


def normalize(channels: int, seed: int = 0) -> list[Tensor]:
    """The statistics and the result of a BatchNorm."""
    torch.manual_seed(seed)
    x = torch.randn(2, channels, 8, 8, device=here.device)
    mean, variance = torch.zeros(channels).to(x), torch.ones(channels).to(x)
    return [mean, variance, F.batch_norm(x, mean, variance, training=True)]


@check
def statistics_of_batch_norm_are_copied_into_a_buffer() -> None:
    sizes = (8, 300, 16, 300, 8)
    streams: list[Any] = [torch.Stream(device=here.device) for _ in range(2)]
    plain = [each for channels in sizes for each in normalize(channels)]
    used = torch.accelerator.memory_allocated(here.device) if here.fake is None else 0
    with recoup.budget(with_outside(16 * MIB), device=here.device) as run:
        for _ in range(2):
            before = outside_allocations()
            ours = [each for channels in sizes for each in normalize(channels)]
            assert_same(ours, plain)
        assert outside_allocations() == before
        for _ in range(3):  # a buffer serves one stream
            for stream in streams:
                with stream:
                    ours = [each for channels in sizes for each in normalize(channels)]
                    assert_same(ours, plain)
        run.check()
        del ours
    if here.fake is None:
        assert torch.accelerator.memory_allocated(here.device) == used


@check
def a_batch_norm_that_does_not_fit_is_undone() -> None:
    with recoup.budget(with_outside(16 * MIB), device=here.device) as run:
        normalize(4)
        torch.manual_seed(0)
        x = torch.randn(8, 4, MIB // 32).to(here.device)  # 4 MiB
        held = torch.randn(2, MIB).to(here.device)  # 8 MiB
        mean, variance = torch.full((4,), 2.0).to(x), torch.full((4,), 3.0).to(x)
        text = message(
            torch.OutOfMemoryError, lambda: F.batch_norm(x, mean, variance, training=True)
        )
        assert "Tried to allocate" in text or "budget" in text, text
        assert_same([mean, variance], [torch.full((4,), 2.0), torch.full((4,), 3.0)])
        del held
        F.batch_norm(x, mean, variance, training=True)
        assert not same(mean, torch.full((4,), 2.0))
        run.check()


@check
def one_question_whether_a_stream_is_captured_for_an_op() -> None:
    if here.stand_in is None:
        return

    def questions(program: Callable[[], Tensor]) -> int:
        program()
        before = here.stand_in.calls("cudaStreamIsCapturing")
        program()
        return int(here.stand_in.calls("cudaStreamIsCapturing") - before)

    x = torch.randn(4, 64, 64, device=here.device)
    programs: list[Callable[[], Tensor]] = [x.sin, lambda: x @ x, lambda: x.sort()[0]]
    plain = [questions(program) for program in programs]
    with recoup.budget(with_outside(16 * MIB), device=here.device):
        assert [questions(program) for program in programs] == [count + 1 for count in plain]


@check
def a_chain_in_less_and_less() -> None:
    model = chain(12)
    assert_same_when_short(lambda: step(model), step(model))


# ---- CUDA only ----
@check
def recurrent_layers() -> None:
    """cuDNN layers that are made in the scope; their weights lie in one storage."""
    if stand_in_lacks("cuDNN"):
        return

    def program(kind: str) -> list[Tensor]:
        torch.manual_seed(0)
        net = getattr(torch.nn, kind)(128, 128).to(here.device)
        head = torch.nn.Linear(128, 128, device=here.device)
        optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)
        for _ in range(3):
            x = torch.randn(64, 32, 128, device=here.device)
            for _ in range(48):
                x = head(net(x)[0]).tanh()
            optimizer.zero_grad()
            x.square().mean().backward()
            optimizer.step()
        return [x.detach().cpu(), *(weight.detach().cpu() for weight in net.parameters())]

    torch.use_deterministic_algorithms(True)
    for kind in ("LSTM", "GRU", "RNN"):
        plain = program(kind)
        assert_same(program(kind), plain)
        assert_same_when_short(partial(program, kind), plain)


@check
def fused_attention() -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    if stand_in_lacks("fused attention"):
        return

    def program(backend: SDPBackend) -> list[Tensor]:
        torch.manual_seed(0)
        q, k, v = (
            torch.randn(
                8, 16, 256, 64, device=here.device, dtype=torch.bfloat16, requires_grad=True
            )
            for _ in range(3)
        )
        with sdpa_kernel(backend):
            x = q
            for _ in range(32):
                x = F.scaled_dot_product_attention(x, k, v, dropout_p=0.1, is_causal=True)
        x.float().square().sum().backward()
        return [x.cpu(), v.grad.cpu()]  # type: ignore[union-attr]

    # With warn_only, their backward passes would stay those that differ from run to run.
    torch.use_deterministic_algorithms(True)
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):
        plain = program(backend)
        assert_same(program(backend), plain)
        assert_same_when_short(partial(program, backend), plain)
