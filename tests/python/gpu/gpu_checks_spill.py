"""A spill tier of a budget on a GPU: pinned memory of the host."""

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

import recoup
from gpu_context import (
    KIB,
    MIB,
    assert_same,
    check,
    counted_waits,
    here,
    message,
    same,
    with_outside,
)
from recoup._memory.device_memory import free_bytes
from recoup.bench.flat_options import split


def model_and_optimizer() -> tuple[nn.Sequential, torch.optim.Optimizer]:
    """Layers that are large compared with the memory that CUDA's libraries use."""
    torch.manual_seed(0)
    width = 256 if here.fake is not None else 1024
    layers = [layer for _ in range(8) for layer in (nn.Linear(width, width), nn.GELU())]
    model = nn.Sequential(*layers).to(here.device)
    return model, torch.optim.AdamW(model.parameters(), 1e-3, foreach=False)


def steps(model: nn.Sequential, optimizer: torch.optim.Optimizer, count: int = 3) -> list[Tensor]:
    chance = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(count):
        x = torch.randn(32, model[0].in_features, generator=chance).to(here.device)  # type: ignore[arg-type]
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().cpu())
    return losses


def training() -> list[Tensor]:
    """Parameters and the optimizer's state are most of its memory."""
    model, optimizer = model_and_optimizer()
    losses = steps(model, optimizer)
    left = [value.detach().cpu() for value in model.parameters()]
    for state in optimizer.state.values():
        left += [value.cpu() for value in state.values()]
    return losses + left


def floor_bytes() -> int:
    """Bytes of the parameters, gradients and two moments."""
    model, _ = model_and_optimizer()
    return 4 * sum(parameter.nbytes for parameter in model.parameters())


def tight_budget() -> int:
    """Half of the peak of the training."""
    with recoup.budget(min(free_bytes(here.device), 240 * MIB), device=here.device) as run:
        training()
    stats = run.stats()
    taken = stats.peak_bytes - stats.external_bytes
    assert taken // 2 < floor_bytes(), "it has to be below what training keeps in any case"
    return with_outside(taken // 2)


@check
def spilling() -> None:
    """The bits are the same in a budget below parameters, gradients and the optimizer's state."""
    plain = training()
    budget = tight_budget()
    message(recoup.OutOfBudgetError, lambda: within(budget))
    for options in ({}, {"policy": "lru"}, {"in_place": "copy"}, {"check_replays": True}):
        ours, stats = within(budget, spill="512MiB", **options)
        assert_same(ours, plain)
        assert stats.spilled_bytes > 0 and stats.fetches > 0, options
        assert stats.peak_bytes <= budget, options
        assert 0 < stats.spill_peak_bytes <= 512 * MIB, options


def within(budget: int, **options: Any) -> tuple[list[Tensor], recoup.Stats]:
    with recoup.budget(budget, device=here.device, **split(options)) as run:
        ours = training()
        run.check()
    return ours, run.stats()


@check
def a_fused_optimizer_in_parts() -> None:
    """The tensors of its op exceed the budget: they are resident one part after the other."""
    count, size = 8, 5 * MIB

    def program(**how: bool) -> list[Tensor]:
        torch.manual_seed(0)
        weights = [torch.randn(size // 4, device=here.device) for _ in range(count)]
        optimizer = torch.optim.AdamW([each.requires_grad_() for each in weights], **how)
        for _ in range(3):
            for weight in weights:
                (weight * weight).mean().backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
        moments = [state["exp_avg_sq"] for state in optimizer.state.values()]
        return [each.detach().cpu() for each in (*weights, *moments)]

    plain = program(fused=True)
    # Weights, gradients and two moments.
    budget = with_outside(count * size * 4 * 6 // 10)
    with recoup.budget(budget, device=here.device, spill="512MiB") as run:
        ours = program(fused=True)
    assert_same(ours, plain)
    assert run.stats().fetches > 0
    # Without parts, the lists of the largest op have 120 MiB.
    budget = with_outside(count * size * 2)
    with recoup.budget(budget, device=here.device, spill="512MiB"):
        text = message(recoup.OutOfBudgetError, lambda: program(foreach=True))
    assert "fused=True or foreach=False" in text, text


@check
def lists_are_not_cut_without_need() -> None:
    """Channels-last weights and a learning rate on the host need no more memory than others."""

    def program(rate: float | Tensor, scaled: bool) -> list[Tensor]:
        torch.manual_seed(0)
        convolutions = [
            torch.nn.Conv2d(64, 64, 3, device=here.device).to(memory_format=torch.channels_last)
            for _ in range(80)
        ]
        weights = [weight for each in convolutions for weight in each.parameters()]
        optimizer = torch.optim.AdamW(weights, lr=rate, fused=True)
        scaler = torch.amp.GradScaler(here.device.type, enabled=scaled)
        for _ in range(2):
            for weight in weights:
                scaler.scale((weight * weight).mean()).backward()
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        return [weight.detach().cpu() for weight in weights]

    for rate in (1e-3, torch.tensor(1e-3)):
        for scaled in (False, True):
            plain = program(rate, scaled)
            # Twice the bytes of weights, gradients and moments.
            with recoup.budget(with_outside(96 * MIB), device=here.device) as run:
                assert_same(program(rate, scaled), plain)
            run.check()


@check
def a_small_tier() -> None:
    """A value without room in the tier stays resident or is replayed; the capacity is a limit."""
    plain = training()
    budget = tight_budget()
    for fraction in (4, 8, 64):
        spill = floor_bytes() // fraction
        with recoup.budget(budget + floor_bytes(), device=here.device, spill=spill) as run:
            ours = training()
            if here.fake is not None:
                assert here.fake.pinned_bytes() <= spill
        assert_same(ours, plain)
        assert run.stats().spill_peak_bytes <= spill
    if here.fake is not None:
        assert here.fake.pinned_bytes() == 0, "the scope is over"


@check
def the_host_has_no_memory_to_pin() -> None:
    if here.fake is None:
        print("the host's memory can be taken away on the test device only")
        return
    budget = tight_budget()
    plain = training()
    here.fake.set_pinned_limit(0)
    text = message(recoup.OutOfBudgetError, lambda: within(budget, spill="512MiB"))
    assert "spill tier could not be written" in text, text
    ours, stats = within(budget * 2, spill="512MiB")
    assert_same(ours, plain)
    assert stats.spills == 0


def leaves() -> list[Tensor]:
    """Tensors copied from the host and changed twice: they are non-recomputable."""
    torch.manual_seed(0)
    made = [torch.randn(256 * KIB).to(here.device) for _ in range(12)]
    one = torch.ones(1, device=here.device)
    for each in made:
        each.add_(one)
        each.add_(one)
    return made


@check
def the_exit_fetches_live_values() -> None:
    """After the exit, the values are ready on every stream and on the host."""
    plain = [each.cpu() for each in leaves()]
    with recoup.budget(with_outside(8 * MIB), device=here.device, spill="64MiB") as run:
        made = leaves()
        assert any(not recoup.is_resident(each) for each in made)
        run.set_budget(with_outside(32 * MIB))
    assert run.stats().fetches > 0
    side = torch.Stream(device=here.device)
    with side:
        doubled = [each * 2 for each in made]
        side.synchronize()
    assert all(same(a, b * 2) for a, b in zip(doubled, plain, strict=True))
    assert_same(made, plain)


@check
def an_exit_of_a_tier_that_does_not_fit_is_resumed() -> None:
    plain = [each.cpu() for each in leaves()]
    budget = recoup.budget(with_outside(8 * MIB), device=here.device, spill="64MiB")
    run = budget.__enter__()
    made = leaves()
    message(recoup.OutOfBudgetError, lambda: budget.__exit__(None, None, None))
    run.resume(32 * MIB)
    assert run.stats().fetches > 0
    assert_same(made, plain)


@check
def a_model_from_outside_is_trained_with_a_tier() -> None:
    def program(scope: Any) -> list[Tensor]:
        model, optimizer = model_and_optimizer()
        with scope() as run:
            losses = steps(model, optimizer)
            optimizer.zero_grad()
            optimizer.state.clear()
            if run is not None:
                run.check()
        if run is not None:
            assert run.stats().spills > 0
        return losses + [parameter.detach().cpu() for parameter in model.parameters()]

    plain = program(nullcontext)

    def scope() -> recoup.Budget:
        # Below gradients and moments.
        budget = with_outside(floor_bytes() // 2)
        return recoup.budget(budget, device=here.device, spill="512MiB")

    assert_same(program(scope), plain)


@check
def spilling_makes_the_host_wait_for_nothing() -> None:
    """Copies are ordered on the device."""

    def waits(scope: Any) -> int:
        with scope as run:
            model, optimizer = model_and_optimizer()
            one_step(model, optimizer)  # initializations that happen once
            with counted_waits() as counted:
                for _ in range(3):
                    one_step(model, optimizer)
            del model, optimizer  # more than the budget
        if run is not None:
            assert run.stats().spills > 0
        return counted[0]

    def one_step(model: nn.Sequential, optimizer: torch.optim.Optimizer) -> None:
        model(torch.ones(32, model[0].in_features, device=here.device)).square().mean().backward()  # type: ignore[arg-type]
        optimizer.step()
        optimizer.zero_grad()

    budget = tight_budget()
    plain = waits(nullcontext())
    ours = waits(recoup.budget(budget + 2 * MIB, device=here.device, spill="512MiB"))
    assert ours == plain, f"{ours} against {plain}"


@check
def refused_tiers() -> None:
    def enter(**options: Any) -> None:
        with recoup.budget(with_outside(16 * MIB), device=here.device, **split(options)):
            pass

    text = message(ValueError, lambda: enter(spill="64MiB", spill_dir="/var/tmp"))
    assert "pinned host memory, not in a directory" in text, text
    text = message(ValueError, lambda: enter(spill="4096TiB"))
    assert "choose a smaller spill" in text, text
    enter(spill="64MiB")
