"""Typical user programs in budgets on CUDA: loaders, mixed precision; and failing drivers."""

import gc
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import Tensor

import recoup
from gpu_context import (
    KIB,
    MIB,
    assert_same,
    chain,
    check,
    empty_cache,
    here,
    same,
    small_budget,
    with_outside,
)
from recoup.bench.flat_options import split

OUT_OF_MEMORY = 2  # the same code in the runtime and in the driver


@check
def a_pinned_loader_and_a_copy_stream() -> None:
    """Batches come from pinned memory on a separate stream, as prefetchers copy them."""
    rows = torch.randn(32, 64 * KIB, generator=torch.Generator().manual_seed(0))
    loader: Any = torch.utils.data.DataLoader(rows, batch_size=4, pin_memory=True)  # type: ignore[arg-type]

    def program() -> list[Tensor]:
        own, side = torch.cuda.current_stream(), torch.cuda.Stream()
        made = []
        for batch in loader:
            assert batch.is_pinned()
            with torch.cuda.stream(side):
                x = batch.to(here.device, non_blocking=True)
            own.wait_stream(side)
            x.record_stream(own)
            made.append((x * 2).sin().sum(1))
        return [each.cpu() for each in made]

    plain = program()
    for options in ({}, {"spill": "64MiB"}):
        with recoup.budget(with_outside(8 * MIB), device=here.device, **split(options)) as run:
            ours = program()
            run.check()
        assert_same(ours, plain)


@check
def mixed_precision_with_a_scaler() -> None:
    def program() -> list[Tensor]:
        model = chain(6)
        optimizer = torch.optim.SGD(model.parameters(), 1e-3)
        scaler = torch.amp.GradScaler(here.device.type)
        for seed in range(3):
            torch.manual_seed(seed)
            x = torch.randn(256, 256, device=here.device)
            with torch.autocast(here.device.type, torch.float16):
                loss = model(x).float().square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        return [parameter.detach().cpu() for parameter in model.parameters()]

    plain = program()
    with recoup.budget(with_outside(128 * MIB), device=here.device) as run:
        assert_same(program(), plain)
    outside, peak = run.stats().external_bytes, run.stats().peak_bytes
    with recoup.budget(outside + (peak - outside) * 7 // 10, device=here.device) as run:
        assert_same(program(), plain)
    assert run.stats().evictions > 0


@check
def checkpoints_inside() -> None:
    model = chain(8)

    def checkpointed(x: Tensor) -> Tensor:
        for layer in model:
            x = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)
        return x

    def program() -> list[Tensor]:
        torch.manual_seed(1)
        x = torch.randn(512, 256, device=here.device)
        loss = checkpointed(x).square().mean()
        loss.backward()
        gradients = [parameter.grad.cpu() for parameter in model.parameters()]  # type: ignore[union-attr]
        model.zero_grad()
        return [loss.detach().cpu(), *gradients]

    plain = program()
    with recoup.budget(small_budget(model), device=here.device) as run:
        assert_same(program(), plain)
        run.check()


@check
def a_memory_pool_outside_of_scopes() -> None:
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        a = torch.ones(64 * KIB, device=here.device)
    with recoup.budget(with_outside(16 * MIB), device=here.device):
        b = a + 1
    with torch.cuda.use_mem_pool(pool):
        c = b + torch.ones(64 * KIB, device=here.device)
    assert same(b, torch.full((64 * KIB,), 2.0)) and same(c, torch.full((64 * KIB,), 3.0))


@check
def pytorchs_allocator_answers_inside_a_budget() -> None:
    a = torch.ones(MIB, device=here.device)
    torch.cuda.memory._record_memory_history()
    with recoup.budget(with_outside(32 * MIB), device=here.device) as run:
        b = a * 2
        torch.cuda.memory_stats()
        torch.cuda.memory_summary()
        torch.cuda.memory_snapshot()
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.empty_cache()
        run.check()
    torch.cuda.memory._record_memory_history(None)
    assert same(b, torch.full((MIB,), 2.0))


def evicts_and_spills() -> list[Tensor]:
    """Runs in its own scope, with values that must be spilled and values that can be replayed."""
    with recoup.budget(with_outside(8 * MIB), device=here.device, spill="32MiB") as run:
        side = torch.Stream(device=here.device)
        held = [torch.full((256 * KIB,), float(i)).to(here.device) for i in range(8)]
        side.wait_event(torch.accelerator.current_stream(here.device).record_event())
        with side:
            sums = [F.gelu(each).sum() for each in held]
            side.synchronize()
        made = [each.cpu() for each in [*held, *sums]]
        del held, sums
        run.check()
    return made


@check
def the_driver_fails_at_each_call_in_turn() -> None:
    """The program gets an error or its results, and the next scope works as usual."""
    if here.stand_in is None:
        print("errors are injected on the stand-in only")
        return
    functions = ("cuMemCreate", "cuMemMap", "cuMemAddressReserve", "cudaHostAlloc", "cudaMalloc")
    functions += ("cudaEventCreateWithFlags", "cudaStreamCreateWithFlags")
    want = evicts_and_spills()
    for function in functions:
        before = here.stand_in.calls(function)
        assert_same(evicts_and_spills(), want)
        for call in range(1, here.stand_in.calls(function) - before + 1):
            here.stand_in.fail(function, call, OUT_OF_MEMORY)
            assert_same(results_or_error(evicts_and_spills) or want, want)
            here.stand_in.clear_faults()
            gc.collect()
            empty_cache()
            assert_same(evicts_and_spills(), want)


def results_or_error(program: Callable[[], list[Tensor]]) -> list[Tensor] | None:
    try:
        return program()
    except (RuntimeError, torch.OutOfMemoryError):
        return None
