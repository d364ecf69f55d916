"""Budgets on a GPU change no bit: trainings, random numbers, streams, and features of CUDA only."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import recoup
from gpu_context import (
    KIB,
    MIB,
    assert_same,
    chain,
    check,
    counted_waits,
    here,
    same,
    small_budget,
    step,
    with_outside,
)
from recoup._memory.device_memory import free_bytes
from recoup.bench.nets.tiny import net_named
from train import Result, assert_bits_equal, train, variant_named

NOT_REPEATABLE = "does not have a deterministic implementation"
"""A part of PyTorch's error for an op whose sums have no fixed order."""


# ---- whole trainings ----
def in_new_thread(function: Callable[[], Result]) -> Result:
    """The result of `function`, called on a new thread.

    Autograd runs the nodes of a backward pass in the order of sequence numbers, which each thread
    counts for itself. A double backward pass has nodes of the calling thread and of the device's
    thread. Their order, and so the order of sums, depends on both counters. A new thread counts
    from 0, so after `number_many_nodes` the device's thread is always ahead of it.
    """
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def number_many_nodes() -> None:
    """Advances the sequence number of the device's autograd thread beyond that of any training."""
    x = torch.ones(1, device=here.device, requires_grad=True)
    y = x
    for _ in range(1000):
        y = y * x
    torch.autograd.grad(y, x, create_graph=True)


@check
def training(net: str, variant: str, fractions: str = "0.7,0.5,0.4") -> None:
    torch.use_deterministic_algorithms(True)
    made_outside = len(variant) % 2 == 1

    def run(budget: int | None = None, **options: Any) -> Result:
        return in_new_thread(
            partial(
                train,
                net_named(net),
                variant_named(variant),
                2,
                budget,
                device=str(here.device),
                model_inside=not made_outside,
                **options,
            )
        )

    number_many_nodes()
    try:
        plain = run()
    except RuntimeError as error:
        if NOT_REPEATABLE not in str(error):
            raise
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cudnn.deterministic = True
        if here.stand_in is None:
            not_repeatable(run, str(error).split(maxsplit=1)[0])
            return
        plain = run()  # by kernels of the CPU, which are repeatable
    assert_bits_equal(run(), plain)
    ample = run(min(free_bytes(here.device), 200 * MIB))
    assert_bits_equal(ample, plain)

    outside, peak = ample.stats.external_bytes, ample.stats.peak_bytes

    def evictions_in(budget: int, policy: str, check_replays: bool) -> int | None:
        """None if the training does not fit."""
        try:
            result = run(budget, policy=policy, check_replays=check_replays)
        except recoup.OutOfBudgetError:
            return None
        assert_bits_equal(result, plain)
        assert result.stats.peak_bytes <= budget
        return result.stats.evictions

    fitted = [
        evictions_in(outside + int((peak - outside) * fraction), policy, check_replays=at == 1)
        for at, fraction in enumerate(map(float, fractions.split(",")))
        for policy in ("recoup", ("dtr-eq", "coop", "lru")[at % 3])
    ]
    assert all(evictions is None or evictions > 0 for evictions in fitted), fitted
    if any(fitted):
        return
    # An op on lists needs all of its tensors at once; and budgets are multiples of 2 MiB, which is
    # much of a small training.
    unit = 2 * MIB
    budget = (peak - 1) // unit * unit
    while (evictions := evictions_in(budget, "recoup", check_replays=False)) == 0:
        budget -= unit
    if evictions is None:
        # The workspaces of kernels of a real device may be most of a small training.
        assert here.fake is None and here.stand_in is None
        print("no budget evicts anything and fits")


def not_repeatable(run: Callable[..., Result], op: str) -> None:
    """Two plain runs may differ, so no bits are compared."""
    stats = run(min(free_bytes(here.device), 200 * MIB)).stats
    room = stats.peak_bytes - stats.external_bytes
    budget = stats.external_bytes + room * 7 // 10
    stats = run(budget).stats
    assert stats.evictions > 0 and stats.peak_bytes <= budget
    print(f"bits are not compared: {op} has no deterministic kernel")


# ---- random numbers ----
@check
def random_numbers() -> None:
    def program() -> list[Tensor]:
        torch.manual_seed(3)
        generator = torch.Generator(device=here.device).manual_seed(5)
        made = [torch.randn(64 * KIB, device=here.device) for _ in range(4)]
        made += [torch.rand(64 * KIB, device=here.device, generator=generator) for _ in range(4)]
        made += [F.dropout(x, 0.3) for x in made]
        made += [torch.empty_like(x).normal_() for x in made[:2]]
        made += [torch.randperm(1000, device=here.device), torch.bernoulli(made[4].sigmoid())]
        if torch.accelerator.current_accelerator() is not None and recoup._C.active():
            for x in made:
                recoup.evict(x)
        # The current states of the generators, and all numbers from the recorded states.
        after = [
            torch.randn(10, device=here.device),
            torch.rand(10, device=here.device, generator=generator),
        ]
        return [x.cpu() for x in made + after]

    plain = program()
    with recoup.budget(
        64 * MIB, device=here.device, options=recoup.Options(small_result_bytes=0)
    ) as run:
        ours = program()
    assert run.stats().replays >= 8, run.stats().replays
    assert_same(ours, plain)


# ---- streams ----
def on_three_streams(seed: int) -> list[Tensor]:
    """Work that the program orders by events."""
    order = torch.Generator().manual_seed(seed)
    lanes = [torch.Stream(device=here.device) for _ in range(3)]
    made: list[tuple[Tensor, Any]] = []
    torch.manual_seed(0)
    first = torch.randn(64 * KIB, device=here.device)
    ready = torch.accelerator.current_stream(here.device).record_event()
    made.append((first, ready))
    for _ in range(80):
        lane = lanes[int(torch.randint(3, (), generator=order))]
        picks = torch.randint(len(made), (2,), generator=order).tolist()
        with lane:
            for pick in picks:
                lane.wait_event(made[pick][1])
                made[pick][0].record_stream(lane)
            a, b = (made[pick][0] for pick in picks)
            c = torch.sin(a) * 0.5 + b
            if int(torch.randint(4, (), generator=order)) == 0:
                c.mul_(0.99)
            made.append((c, lane.record_event()))
        if len(made) > 24:
            del made[int(torch.randint(1, 20, (), generator=order))]
    own = torch.accelerator.current_stream(here.device)
    for _, event in made:
        own.wait_event(event)
    return [made.pop()[0].cpu() for _ in range(len(made))]


@check
def streams(seed: str = "0") -> None:
    """In too little memory, with and without a spill tier."""
    plain = on_three_streams(int(seed))
    for budget in (64 * MIB, 6 * MIB, 4 * MIB):
        with recoup.budget(with_outside(budget), device=here.device) as run:
            ours = on_three_streams(int(seed))
            run.check()
        assert_same(ours, plain)
    assert run.stats().replays > 0
    with recoup.budget(with_outside(4 * MIB), device=here.device, spill="64MiB") as run:
        ours = on_three_streams(int(seed))
        run.check()
    assert_same(ours, plain)
    assert run.stats().spills + run.stats().replays > 0


@check
def one_stream_pays_no_event() -> None:
    model = chain()
    budget = small_budget(model)
    if here.fake is None:
        print("events are counted on the test device only")
        return
    before = here.fake.waits()
    with recoup.budget(budget, device=here.device) as run:
        step(model)
    assert run.stats().replays > 0
    assert here.fake.waits() == before


@check
def the_host_does_not_wait_more_often() -> None:
    """Neither an eviction, nor a replay, nor a move makes the host wait for the device."""
    model = chain(12)
    budget = small_budget(model)

    def waits(scope: Any) -> tuple[int, int]:
        with scope as run:
            step(model)  # initializations that happen once
            with counted_waits() as counted:
                for seed in range(3):
                    torch.manual_seed(seed)
                    model(torch.randn(512, 256, device=here.device)).square().mean().backward()
                    model.zero_grad()
            return counted[0], 0 if run is None else run.stats().replays

    plain, _ = waits(nullcontext())
    ours, replays = waits(recoup.budget(budget, device=here.device))
    assert replays > 0
    assert ours == plain, f"{ours} against {plain}"


# ---- CUDA only ----
@check
def tf32() -> None:
    """A replay runs with the TF32 switch of the op's first run."""
    for at_first in (False, True):
        torch.backends.cuda.matmul.allow_tf32 = at_first
        with recoup.budget(64 * MIB, device=here.device) as run:
            torch.manual_seed(0)
            x = torch.randn(512, 512, device=here.device)
            y = x @ x
            want = y.cpu()
            torch.backends.cuda.matmul.allow_tf32 = not at_first
            assert recoup.evict(y)
            assert same(y, want)
        assert run.stats().replays == 1


@check
def graphs_outside_of_budgets() -> None:
    """Two graphs share a pool; both run before, in and after a budget that needs all memory."""
    x = torch.zeros(64 * KIB, device=here.device)
    chain_of_ops(x)  # loads the kernels
    graphs = [torch.cuda.CUDAGraph() for _ in range(2)]
    results: list[Tensor] = []
    for graph in graphs:
        with torch.cuda.graph(graph, pool=graphs[0].pool() if results else None):
            results.append(chain_of_ops(x))

    def replay(value: float) -> None:
        x.fill_(value)
        for graph, result in zip(graphs, results, strict=True):
            graph.replay()
            assert same(result, chain_of_ops(x))

    replay(1)
    torch.cuda.empty_cache()
    others = [torch.full((64 * KIB,), 3.0, device=here.device) for _ in range(50)]
    replay(2)
    assert all(bool((other == 3).all()) for other in others)
    with recoup.budget(with_outside(16 * MIB), device=here.device):
        kept = torch.full((64 * KIB,), 4.0, device=here.device).sin()
        graphs[0].replay()
    replay(5)
    assert same(kept, torch.full((64 * KIB,), 4.0, device=here.device).sin())
    del graph, graphs[:]
    torch.cuda.empty_cache()
    assert all(bool(result.isfinite().all()) for result in results)


def chain_of_ops(x: Tensor) -> Tensor:
    for _ in range(5):
        x = x.sin() + 1
    return x
