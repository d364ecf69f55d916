"""Simulations page the results that a live run pages, and make the same decisions."""

import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import recoup
from test_paged_results import MIB, PROGRAMS, WINDOW

OPTIONS = recoup.Options(page_window=WINDOW, cost_model="bytes")
SAME = (
    "evictions",
    "evicted_bytes",
    "replays",
    "spills",
    "moves",
    "paged_allocations",
    "paged_bytes",
    "in_place_results",
)


def mixed() -> list[torch.Tensor]:
    """Values that are evicted and replayed between results that are paged, or fit only later."""
    torch.manual_seed(0)
    kept = [torch.rand(256, 1024).mul(number) for number in range(1, 9)]
    x = torch.rand(3073)
    large = torch.outer(x, x[:-2])  # the pool rounds its size up
    sums = [each.exp().sum() for each in kept]
    large.mul_(2.0).add_(1.0)
    rows = large[::512].clone()
    del large
    again = [each.add(1.0).amax() for each in kept]
    fits = torch.outer(x[:1024], x[:1024]).sum(0)
    return [*sums, rows, *again, fits]


ALL: dict[str, Callable[[], list[torch.Tensor]]] = PROGRAMS | {"mixed": mixed}


def traced(name: str, path: Path, budget: int | None, spill: str | None) -> recoup.Trace:
    options = OPTIONS if budget is not None else recoup.Options(cost_model="bytes")
    with recoup.budget(budget or 4 << 30, spill=spill, options=options, trace=path):
        ALL[name]()
    return recoup.Trace.read(path)


def simulate(
    path: Path,
    budget: int,
    *,
    policy: str = "recoup",
    spill: str | None = None,
    options: recoup.Options = OPTIONS,
) -> recoup.Simulation:
    trace = recoup.Trace.read(path)
    return trace.simulate(
        budget,
        recoup.SimulationOptions(policy=policy, spill=spill, **vars(options)),
        decisions=True,
    )


@pytest.mark.parametrize(("budget", "spill"), [(24 * MIB, None), (33 * MIB, "256MiB")])
@pytest.mark.parametrize("name", ALL)
def test_a_simulation_makes_the_decisions_of_the_live_run(
    name: str, budget: int, spill: str | None, tmp_path: Path
) -> None:
    """From the recording of the same budget, and from one of a budget in which all fits."""
    with recoup.budget(budget, spill=spill, options=OPTIONS, profile="decisions") as run:
        ALL[name]()
    live, decisions = run.stats(), run.decisions()
    assert live.paged_allocations > 0
    for recorded in (budget, None):
        trace = traced(name, tmp_path / "run.rtrace", recorded, spill)
        simulated = trace.simulate(
            budget,
            recoup.SimulationOptions(policy="recoup", spill=spill, **vars(OPTIONS)),
            decisions=True,
        )
        assert simulated.status == "ok", simulated.reason
        for each in SAME:
            assert getattr(simulated.stats, each) == getattr(live, each), (each, recorded)
        # An op that is replayable in all that fits keeps the constants that it has read.
        assert abs(simulated.stats.peak_bytes - live.peak_bytes) <= (0 if recorded else 64)
        assert simulated.decisions == decisions


@pytest.mark.parametrize("name", ALL)
def test_a_recording_with_paged_results_is_one_without(name: str, tmp_path: Path) -> None:
    """Both have the same ops, allocations and results, and so the same simulations."""
    paged = traced(name, tmp_path / "paged.rtrace", 24 * MIB, None)
    whole = traced(name, tmp_path / "whole.rtrace", None, None)
    difference = paged.unbudgeted_peak_bytes() - whole.unbudgeted_peak_bytes()
    assert abs(difference) <= 64  # a constant
    for one, other in zip(paged.ops(), whole.ops(), strict=True):
        assert one.name == other.name and one.fresh_bytes == other.fresh_bytes
        assert one.operands == other.operands and one.repeatable == other.repeatable


def test_an_out_tensor_that_grows(tmp_path: Path) -> None:
    """The simulation of the same budget makes the same decisions."""

    def program() -> None:
        large = torch.outer(torch.ones(3072), torch.ones(3072))
        out = torch.empty(0)
        torch.add(large, 1.0, out=out)
        out[::512].clone().exp().sum()
        del out

    path = tmp_path / "run.rtrace"
    with recoup.budget(24 * MIB, options=OPTIONS, trace=path) as run:
        program()
    assert run.stats().paged_allocations > 1
    simulated = simulate(path, 24 * MIB)
    for each in SAME:
        assert getattr(simulated.stats, each) == getattr(run.stats(), each), each


def test_a_window_that_an_earlier_scope_filled(tmp_path: Path) -> None:
    """It is charged once, also in simulations."""
    path = tmp_path / "run.rtrace"
    for budget in (18 * MIB, 1 << 30):
        with recoup.budget(18 * MIB, options=OPTIONS):
            earlier = torch.outer(torch.ones(2048), torch.ones(2600))
        with recoup.budget(18 * MIB, options=OPTIONS, profile="decisions") as run:
            earlier.sum()
            torch.outer(torch.ones(2048), torch.ones(2600)).sum()
        with recoup.budget(budget, options=OPTIONS, trace=path):
            earlier.sum()
            torch.outer(torch.ones(2048), torch.ones(2600)).sum()
        made = simulate(path, 18 * MIB)
        assert made.status == "ok", made.reason
        assert made.decisions == run.decisions()
        assert made.stats.peak_bytes == run.stats().peak_bytes
        del earlier


def test_an_op_that_fails_may_be_paged(tmp_path: Path) -> None:
    def program() -> None:
        x = torch.ones(8, 1 << 20)
        with pytest.raises(IndexError):
            x.index_select(0, torch.tensor([99]))

    with recoup.budget(1 << 30, options=OPTIONS, trace=tmp_path / "run.rtrace"):
        program()
    assert simulate(tmp_path / "run.rtrace", 18 * MIB).status == "ok"


def test_the_end_of_paged_results(tmp_path: Path) -> None:
    """It has the same place among evictions, steps and the ends of other results."""

    def program(run: recoup.Run) -> None:
        x = torch.rand(3072)
        kept = [torch.rand(1 << 18).mul(2.0) for _ in range(4)]
        large = torch.outer(x, x)
        part = large[:64].exp()
        y = kept.pop()
        del large, y
        recoup.evict(part)
        z = torch.outer(x, x)
        other = z[:32].clone()
        del z
        run.mark_step()
        assert part.sum() > 0 and other.sum() > 0
        del part
        torch.outer(x, x).sum()

    with recoup.budget(24 * MIB, options=OPTIONS, profile="decisions") as run:
        program(run)
    for budget in (24 * MIB, 1 << 30):
        with recoup.budget(budget, options=OPTIONS, trace=tmp_path / "run.rtrace") as traced:
            program(traced)
        made = simulate(tmp_path / "run.rtrace", 24 * MIB)
        assert made.decisions == run.decisions()
        assert made.stats.freezes == run.stats().freezes


def test_plans_with_paged_results(tmp_path: Path) -> None:
    """Lists of evictions for steps that page a result: they cost what is planned, and no bit."""

    def program(run: recoup.Run | None) -> list[bytes]:
        torch.manual_seed(0)
        x, w = torch.rand(3072), torch.rand(300, 300, requires_grad=True)
        grads = []
        for _ in range(7):
            made = [torch.tanh(w)]
            for _ in range(20):
                made.append(torch.tanh(made[-1] @ w * 0.01 + made[-1]))
            scale = torch.outer(x, x)[:64].sum()
            (made[-1].sum() * scale).backward()
            assert w.grad is not None
            grads.append(w.grad.clone().numpy().tobytes())
            w.grad = None
            del made
            if run is not None:
                run.mark_step()
        return grads

    plain, budget = program(None), 20 * MIB
    options = replace(OPTIONS, planning="wait")
    with recoup.budget(budget, policy="planned", options=options, profile="decisions") as run:
        assert program(run) == plain
    stats = run.stats()
    assert stats.paged_allocations == 7 and stats.followed_steps > 0
    assert stats.followed_cost_ns <= 1.05 * stats.followed_expected_ns
    for recorded, policy in ((budget, "planned"), (1 << 30, "recoup")):
        path = tmp_path / "run.rtrace"
        with recoup.budget(recorded, policy=policy, options=options, trace=path) as traced:
            program(traced)
        made = simulate(path, budget, policy="planned", options=options)
        assert made.decisions == run.decisions()


def drawn(seed: int, run: recoup.Run) -> None:
    """A program of ops on tensors of up to 6 MiB, of which some die, are written or fail."""
    chance = random.Random(seed)
    torch.manual_seed(0)
    live = [torch.rand(1 << 18).mul(2.0)]

    def any_() -> torch.Tensor:
        return chance.choice(live)

    for _ in range(30):
        x = any_()
        long = torch.rand(chance.choice([700, 1024, 1250]))
        match chance.randrange(10):
            case 0 | 1 | 2:
                live.append(torch.outer(long, long))
            case 3:
                live.append(x.exp())
            case 4:
                live.append(x.reshape(-1)[: x.numel() // 3].clone())
            case 5:
                x.mul_(0.5).add_(1.0)
            case 6:
                values, order = x.reshape(-1).sort()
                live += [values, order.float()]
                del values, order
            case 7:
                with pytest.raises(IndexError):
                    x.index_select(0, torch.tensor([1 << 40]))
            case 8:
                recoup.evict(x)
            case _:
                run.mark_step()
        del x
        while len(live) > 6 or (len(live) > 1 and chance.random() < 0.3):
            del live[chance.randrange(len(live))]
        any_().sum()


@pytest.mark.parametrize("seed", range(int(os.environ.get("RECOUP_PAGED_SEEDS", "12"))))
def test_drawn_programs(seed: int, tmp_path: Path) -> None:
    spill = "256MiB" if seed % 2 else None
    for budget in (26 * MIB, 34 * MIB, 42 * MIB):
        try:
            with recoup.budget(budget, spill=spill, options=OPTIONS, profile="decisions") as run:
                drawn(seed, run)
            break
        except recoup.OutOfBudgetError:
            run.resume("1GiB")
    live = run.stats()
    for recorded in (budget, 1 << 30):
        path = tmp_path / "run.rtrace"
        with recoup.budget(recorded, spill=spill, options=OPTIONS, trace=path) as traced:
            drawn(seed, traced)
        made = simulate(path, budget, spill=spill)
        assert made.status == "ok", made.reason
        for each in SAME:
            assert getattr(made.stats, each) == getattr(live, each), (each, recorded)
        assert made.decisions == run.decisions(), recorded


def test_smaller_results_are_paged_if_the_window_does_not_fit() -> None:
    """Dropout makes a mask of 4.8 MiB, next to which the window does not fit."""

    def program() -> torch.Tensor:
        torch.manual_seed(0)
        x = torch.ones(1).expand(2237, 2240)
        return torch.native_dropout(x, 0.5, True)[1].sum(1)

    plain = program()
    with recoup.budget(18 * MIB, options=OPTIONS) as run:
        made = program()
    assert torch.equal(made, plain)
    assert run.stats().paged_allocations > 2


def test_a_simulation_without_a_window_is_out_of_budget(tmp_path: Path) -> None:
    trace = traced("distances", tmp_path / "run.rtrace", 24 * MIB, None)
    without = trace.simulate(24 * MIB, recoup.SimulationOptions(policy="recoup"))
    assert without.status == "out of budget"
    assert "aten::" in without.reason
    too_small = trace.simulate(8 * MIB, recoup.SimulationOptions(policy="recoup", **vars(OPTIONS)))
    assert too_small.status == "out of budget"
