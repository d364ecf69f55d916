"""Programs in less memory than an op's operands and results take together."""

from pathlib import Path

import pytest
import torch
from torch.nn import functional

import recoup
from conftest import bits_equal

MIB = 1 << 20


def large_vocabulary() -> list[torch.Tensor]:
    """Cross entropy: three tensors of 4 MiB are operands and result of one op in the backward."""
    torch.manual_seed(0)
    weight = torch.randn(4096, 32, requires_grad=True)
    hidden = torch.randn(256, 32)
    labels = torch.randint(4096, (256,))
    losses = []
    for _ in range(3):
        loss = functional.cross_entropy(functional.linear(hidden, weight), labels)
        loss.backward()
        with torch.no_grad():
            assert weight.grad is not None
            weight -= 0.1 * weight.grad
        weight.grad = None
        losses.append(loss.detach())
    return [weight.detach(), *losses]


def activations() -> list[torch.Tensor]:
    torch.manual_seed(0)
    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    c = functional.gelu(a * 2 + 0.5)
    d = torch.softmax(c, 0)
    e = functional.layer_norm(d.add(c), (1024,))
    return [torch.stack([x.sum(), x.min(), x[7, 9]]) for x in (a, b, c, d, e)]


PROGRAMS = {"large_vocabulary": (large_vocabulary, "11MiB"), "activations": (activations, "9MiB")}
BY_BYTES = recoup.Options(cost_model="bytes")


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("policy", ["planned", "recoup", "dtr", "dte", "coop"])
def test_results_in_place_of_operands(name: str, policy: str) -> None:
    program, budget = PROGRAMS[name]
    plain = program()
    with recoup.budget(budget, policy=policy) as run:
        made = program()
        assert bits_equal(made, plain)
    assert run.stats().in_place_results > 0
    assert run.stats().peak_bytes <= run.stats().budget_bytes


@pytest.mark.parametrize("name", PROGRAMS)
def test_without_them_an_op_does_not_fit(name: str) -> None:
    program, budget = PROGRAMS[name]
    options = recoup.Options(reuse_operands=False)
    with recoup.budget(budget, options=options), pytest.raises(recoup.OutOfBudgetError):
        program()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_simulation_decides_as_the_run(name: str, tmp_path: Path) -> None:
    program, budget = PROGRAMS[name]
    with recoup.trace(tmp_path / "t.rtrace"):
        program()
    with recoup.budget(budget, policy="dtr", profile="decisions", options=BY_BYTES) as run:
        program()
    trace = recoup.Trace.read(tmp_path / "t.rtrace")
    simulated = trace.simulate(
        run.stats().budget_bytes,
        recoup.SimulationOptions(policy="dtr", **vars(BY_BYTES), max_time_ratio=0),
        decisions=True,
    )
    assert simulated.status == "ok"
    assert simulated.decisions == run.decisions()
    assert simulated.stats.in_place_results == run.stats().in_place_results > 0


def test_replay_checks_replays_in_place() -> None:
    plain = activations()
    with recoup.budget("9MiB", check_replays=True) as run:
        assert bits_equal(activations(), plain)
    assert run.stats().replay_checks > 0


def test_filled_memory_overwrites_no_operand() -> None:
    """With deterministic algorithms PyTorch fills new tensors, before kernels read operands."""
    torch.use_deterministic_algorithms(True)
    try:
        with recoup.budget("9MiB"), pytest.raises(recoup.OutOfBudgetError):
            activations()
    finally:
        torch.use_deterministic_algorithms(False)


def test_other_layouts_of_the_same_memory() -> None:
    """The operand is read in another order, so the result must not overwrite it."""
    torch.manual_seed(0)
    x = torch.randn(1024, 1024)
    plain = (x + 1) * (x + 1).t()
    with recoup.budget("9MiB"):
        y = x + 1
        with pytest.raises(recoup.OutOfBudgetError):
            y * y.t()
    with recoup.budget("16MiB"):
        y = x + 1
        assert torch.equal(y * y.t(), plain)


@pytest.mark.parametrize("policy", ["recoup", "dtr"])
def test_copies_in_another_layout(policy: str) -> None:
    """The result of `contiguous` has the operand's bytes in another order."""

    def program() -> list[float]:
        torch.manual_seed(0)
        sources = [torch.randn(256, 256) for _ in range(6)]
        copies = [torch.sin(each).t().contiguous() for each in sources]
        sums = [float((copies[i] + copies[5 - i].mul(2)).sum()) for i in range(6)]
        return [*sums, *(float(each[0].sum()) for each in copies)]

    plain = program()
    fitted = 0
    for kib in range(512, 1800, 128):
        try:
            with recoup.budget(f"{kib}KiB", policy=policy) as run:
                assert program() == plain
            assert run.stats().replays > 0
            fitted += 1
        except recoup.OutOfBudgetError:
            continue
    assert fitted > 3


def test_settings_are_those_of_the_program_after_a_replay_in_place() -> None:
    with recoup.budget("16MiB") as run:
        x = torch.ones(MIB)
        torch.set_default_dtype(torch.float64)
        y = torch.sin(x)
        torch.set_default_dtype(torch.float32)
        del x
        assert recoup.evict(y)
        with recoup.pin(torch.ones(11 * MIB // 4)):
            assert float(y[0]) == float(torch.ones(1).sin())
        assert run.stats().in_place_results == 1
        assert torch.get_default_dtype() == torch.float32


def test_a_failed_draw_leaves_the_generator_as_it_was() -> None:
    with recoup.budget("11MiB"):
        x = torch.ones(MIB) * 2
        before = torch.get_rng_state()
        with pytest.raises(recoup.OutOfBudgetError):
            torch.native_dropout(x, 0.5, True)
        assert torch.equal(torch.get_rng_state(), before)
