"""Budgets as percentages and "auto": their sizes on made-up machines."""

import gc
import json
import os
import resource
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import recoup
from command import cli, cli_here
from made_up_machine import GIB, LeaveFree, limited, write
from recoup._memory import machine
from recoup._memory.fractions import MemoryFraction, parse_fraction
from recoup.bench.flat_options import split
from recoup.integrations.held_scope import HeldScope

MIB = 1 << 20


@pytest.fixture
def leave_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LeaveFree:
    return limited(tmp_path, monkeypatch)


def budget_of(budget: str, **options: Any) -> int:
    with recoup.budget(budget, **split(options)) as run:
        return run.stats().budget_bytes


def without_other_tensors() -> int:
    """Bytes of tensors that other tests have left."""
    gc.collect()
    return budget_of("100%") - machine.look().free.free_bytes


# ---- parsing of percentages ----


@pytest.mark.parametrize(
    ("text", "fraction"),
    [
        ("60%", Fraction(3, 5)),
        ("60 %", Fraction(3, 5)),
        ("  12.5% ", Fraction(1, 8)),
        ("100%", Fraction(1)),
        ("100.0%", Fraction(1)),
        ("0.001%", Fraction(1, 100_000)),
        ("007%", Fraction(7, 100)),
        ("auto", None),
        (" AUTO\n", None),
    ],
)
def test_valid_percentages(text: str, fraction: Fraction | None) -> None:
    assert parse_fraction(text) == MemoryFraction(text, fraction)


@pytest.mark.parametrize("value", ["60", "4GiB", "", "automatic", "auto 60", 60, None, 0.6, b"60%"])
def test_other_values_are_not_percentages(value: object) -> None:
    assert parse_fraction(value) is None


@pytest.mark.parametrize(
    "text",
    [
        *("0%", "0.0%", "100.1%", "101%", "-5%", "+5%", "%", " %", "60%%", "1e1%", "nan%", "inf%"),
        *("1,5%", ".5%", "5.%", "1/2%", "0x5%", "auto%", "4GiB%", "\u0666%", "1" * 101 + "%"),
    ],
)
def test_invalid_percentages(text: str) -> None:
    with pytest.raises(ValueError, match=r"above 0 and at most 100, such as '60%' or '12.5%'.*got"):
        recoup.budget(text)


@pytest.mark.parametrize("value", ["four", "60 percent", "0", True, 0.6])
def test_errors_about_sizes_mention_percentages(value: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=r"a percentage such as '60%'.* or 'auto'"):
        recoup.budget(value)


@pytest.mark.parametrize("percentage", ["60%", "auto"])
def test_only_a_budget_can_be_a_percentage(percentage: str) -> None:
    for name in ("spill", "block_size"):
        with pytest.raises(ValueError, match=f"{name} .* it must be a whole number of bytes"):
            recoup.budget("1MiB", **split({name: percentage}))
    with recoup.budget("4MiB") as run:
        for change in (run.set_budget, run.set_budget):
            with pytest.raises(ValueError, match=r"budget .* is not a size; .*'500MB'$"):
                change(percentage)


# ---- sizes of percentages ----


def test_a_percentage_is_of_free_memory_and_of_existing_tensors(leave_free: LeaveFree) -> None:
    others = without_other_tensors()
    assert budget_of("100%") == 1024 * MIB + others
    made = torch.ones(32, MIB, dtype=torch.uint8)
    views = [made[1:], made.t(), made.view(-1)]
    assert budget_of("100%") == 1056 * MIB + others
    assert budget_of("50%") == (1056 * MIB + others) // 2
    assert budget_of("12.5%") == (1056 * MIB + others) // 8
    del made, views
    assert budget_of("100%") == 1024 * MIB + others


def test_existing_tensors_are_charged_at_the_entry(leave_free: LeaveFree) -> None:
    made = torch.ones(32, MIB, dtype=torch.uint8)
    with recoup.budget("60%") as run:
        assert 32 * MIB <= run.stats().external_bytes == run.stats().resident_bytes
        before = run.stats().external_bytes
        (made[0] + 1).sum()
        assert run.stats().external_bytes == before
        del made
        torch.ones(1)
        run.check()


def test_each_with_computes_the_percentage_again(leave_free: LeaveFree) -> None:
    others = without_other_tensors()
    budget = recoup.budget("50%")
    for free in (1024, 512, 700):
        leave_free(free * MIB)
        with budget as run:
            assert run.stats().budget_bytes == (free * MIB + others) // 2
    seen = []

    @recoup.budget("50%")
    def decorated() -> None:
        with pytest.raises(RuntimeError, match="already active"):
            recoup.budget("50%").__enter__()
        seen.append(machine.look().free.free_bytes)

    for free in (1024, 512):
        leave_free(free * MIB)
        decorated()
    assert seen == [1024 * MIB, 512 * MIB]


def test_the_scope_of_callbacks_accepts_percentages(leave_free: LeaveFree) -> None:
    others = without_other_tensors()
    held = HeldScope("25%")
    held.enter()
    assert held.metrics()["recoup_budget_bytes"] == (1024 * MIB + others) // 4
    assert held.leave()


@pytest.mark.filterwarnings("ignore:Sparse CSR", "ignore:torch.quantize_per_tensor")
def test_tensors_of_all_kinds_are_counted() -> None:
    class Sub(torch.Tensor):
        @classmethod
        def __torch_function__(cls, *_: Any, **__: Any) -> Any:
            raise AssertionError("no code of the program runs")

    with FakeTensorMode():
        fake = torch.empty(1 << 44)
    kept = [
        fake,
        torch.empty(1 << 44, device="meta"),
        torch.eye(3).to_sparse(),
        torch.eye(3).to_sparse_csr(),
        torch.nn.UninitializedParameter(),
        torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
        torch.ones(3).as_subclass(Sub),
        torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
    ]
    assert budget_of("50%") < 1 << 44
    assert budget_of("auto") < 1 << 44
    del kept


@pytest.mark.serial
def test_a_spill_tier_imports_existing_tensors() -> None:
    model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(16)])
    made = torch.ones(64, 256)
    with recoup.budget("50%", spill="64MiB") as run:
        external = run.stats().external_bytes
        run.set_budget(external + 2 * MIB)
        model(made).sum().backward()
        assert run.stats().imports > 0
        run.set_budget("256MiB")


@pytest.mark.serial
def test_a_spill_tier_imports_tensors_that_do_not_fit_at_the_entry(leave_free: LeaveFree) -> None:
    others = without_other_tensors()
    model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(8)])
    want = model(torch.ones(2, 1024)).sum().item()
    leave_free(0)
    percentage = 100 * (others + 12 * MIB) // (others + 32 * MIB)
    with recoup.budget(f"{percentage}%", spill="64MiB") as run:
        assert run.stats().budget_bytes < others + 13 * MIB
        assert run.stats().imports > 0
        assert model(torch.ones(2, 1024)).sum().item() == want
        run.set_budget("1GiB")


# ---- budgets that do not fit ----


def test_a_budget_above_the_limit_of_the_container_is_refused(leave_free: LeaveFree) -> None:
    assert budget_of("2GiB") == 2 * GIB
    with pytest.raises(ValueError) as caught:
        recoup.budget("3GiB")
    assert str(caught.value) == (
        "budget must be at most the memory that this process may take, 2147483648 bytes (2.0 GiB) "
        f"according to {machine.look().most.source}; got '3GiB'"
    )
    with recoup.budget("1MiB") as run, pytest.raises(ValueError, match="may take"):
        run.set_budget("3GiB")


@pytest.mark.parametrize("budget", ["100%", "auto"])
def test_a_percentage_without_free_memory_is_refused(
    leave_free: LeaveFree, monkeypatch: pytest.MonkeyPatch, budget: str
) -> None:
    leave_free(0)
    monkeypatch.setattr("recoup._memory.sizing._bytes_of_tensors", lambda: 0)
    with pytest.raises(RuntimeError) as caught:
        budget_of(budget)
    text = str(caught.value)
    assert text.startswith(
        f"the budget {budget!r} leaves no memory for tensors: 0 B are free according to "
    )
    assert "memory.max, and existing tensors take 0 B" in text
    assert text.endswith("Free memory, raise the limit, or give the budget as a size")
    assert ("reserved for memory other than tensors" in text) == (budget == "auto")


def test_existing_tensors_that_do_not_fit_fail_the_entry(leave_free: LeaveFree) -> None:
    made = torch.ones(64, MIB, dtype=torch.uint8)
    leave_free(0)
    with pytest.raises(recoup.OutOfBudgetError) as caught:
        budget_of("10%")
    notes = " ".join(getattr(caught.value, "__notes__", []))
    if notes:  # since Python 3.11
        assert "The budget '10%' is " in notes and "0 B are free according to" in notes
    assert not recoup._C.active()
    assert made.sum().item() == 64 * MIB
    leave_free(GIB)
    assert budget_of("10%") >= GIB // 10


@pytest.mark.parametrize(
    "where", ["recoup._patching.made_outside.charge", "recoup._memory.machine.look"]
)
def test_an_interrupt_leaves_no_scope(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    made = torch.ones(3)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    budget = recoup.budget("50%")
    with monkeypatch.context() as patch:
        patch.setattr(where, interrupt)
        with pytest.raises(KeyboardInterrupt), budget:
            raise AssertionError("the scope has begun")
    assert not recoup._C.active()
    with budget:
        assert made.add(1).tolist() == [2, 2, 2]


# ---- the command ----


def test_the_command_accepts_percentages(tmp_path: Path) -> None:
    write(tmp_path / "script.py", "import torch\nprint(torch.ones(3).sum().item())")
    for budget in ("40%", "auto"):
        files = ("--quiet", "--report", "r.json")
        result = cli("run", "--budget", budget, *files, "script.py", cwd=tmp_path)
        assert (result.returncode, result.stdout, result.stderr) == (0, "3.0\n", "")
        report = json.loads((tmp_path / "r.json").read_text())
        found = report["stats"]["memory"]["budget_bytes"]
        assert 0 < found < machine.look().most.limit_bytes
        assert report["settings"]["budget"] == found


@pytest.mark.parametrize("budget", ["1MiB", "auto"])
def test_a_limit_on_addresses_is_named(tmp_path: Path, budget: str) -> None:
    write(tmp_path / "script.py", "print('ran')")
    most = min(8 * GIB, machine.look().limits[0].limit_bytes // 2)
    result = cli(
        *("run", "--budget", budget, "script.py"),
        cwd=tmp_path,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (most, most)),
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert (result.returncode, result.stdout) == (2, ""), result.stderr
    assert result.stderr.startswith(
        "recoup run: error: --budget: the system refuses to reserve addresses for all"
    )
    assert "(Max address space) is " in result.stderr and "Lift `ulimit -v`" in result.stderr
    assert result.stderr.count("\n") == 1


def test_wrong_percentages_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "s.py", "")
    result = cli_here(capsys, "run", "--budget", "160%", tmp_path / "s.py")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("recoup run: error: --budget in percent must be a number above")
    assert result.stderr.count("\n") == 1
