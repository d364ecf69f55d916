"""The reserve of "auto" for memory that is not in tensors, and its correction during a run."""

import warnings
from pathlib import Path

import pytest
import torch

import recoup
from made_up_machine import GIB, LeaveFree, limited
from recoup._memory import resident
from recoup._memory.resident import Process

MIB = 1 << 20


@pytest.fixture
def leave_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LeaveFree:
    return limited(tmp_path, monkeypatch)


def budget_of(budget: str) -> int:
    with recoup.budget(budget) as run:
        return run.stats().budget_bytes


class Measured:
    """The made-up resident memory of the process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.no_tensor = 400 * MIB
        self.files = 100 * MIB
        self.asked = 0
        monkeypatch.setattr("recoup._memory.sizing._bytes_of_tensors", lambda: 0)
        monkeypatch.setattr("recoup._memory.sizing._tensors", lambda: iter(()))
        monkeypatch.setattr(resident, "pools", dict)
        monkeypatch.setattr(resident, "process", self._process)

    def _process(self) -> Process:
        self.asked += 1
        return Process(taken=self.no_tensor, files=self.files)


def test_auto_reserves_code_and_a_quarter_of_other_memory(
    leave_free: LeaveFree, monkeypatch: pytest.MonkeyPatch
) -> None:
    Measured(monkeypatch)
    assert budget_of("auto") == (1024 - 100 - 400 // 4) * MIB
    assert budget_of("100%") == 1024 * MIB


def test_growth_beyond_the_reserve_is_charged(
    leave_free: LeaveFree, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = Measured(monkeypatch)
    with recoup.budget("auto") as run:
        budget = run.stats().budget_bytes
        charged = []
        for no_tensor in (480, 500, 540, 530, 999, 999, 999, 600):
            measured.no_tensor = no_tensor * MIB
            run.mark_step()
            charged.append(run.stats().external_bytes // MIB)
        # Measured after steps 1, 2, 4 and 8; 100 MiB were reserved; the charge never falls.
        assert charged == [0, 0, 0, 30, 30, 30, 30, 100]
        assert run.stats().budget_bytes == budget
        run.check()
    assert run.stats().external_bytes == 0


def test_the_part_of_the_peak_that_no_tensor_has(
    leave_free: LeaveFree, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = Measured(monkeypatch)
    with recoup.budget("auto") as run:
        large = torch.ones(10 * MIB)
        assert run.non_tensor_peak_bytes() == 0
        measured.no_tensor = 530 * MIB
        run.mark_step()  # charges 30 MiB
        assert run.stats().peak_bytes == 70 * MIB
        assert run.non_tensor_peak_bytes() == 30 * MIB
        del large
        measured.no_tensor = 540 * MIB
        run.mark_step()  # charges 10 MiB more; the peak was before
        small = torch.ones(2 * MIB)
        assert run.stats().external_bytes == 40 * MIB
        assert run.stats().peak_bytes == 70 * MIB
        assert run.non_tensor_peak_bytes() == 30 * MIB
        run.reset_peak_stats()
        assert run.stats().peak_bytes == 48 * MIB
        assert run.non_tensor_peak_bytes() == 40 * MIB
        assert "of it the process" in run.report()
    del small
    assert run.non_tensor_peak_bytes() == 40 * MIB
    with recoup.budget("50%") as run:
        torch.ones(MIB)
    assert run.non_tensor_peak_bytes() == 0


def test_an_optimizer_step_updates_the_charge_under_every_policy(
    leave_free: LeaveFree, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = Measured(monkeypatch)
    model = torch.nn.Linear(3, 3)
    optimizer = torch.optim.SGD(model.parameters())
    for policy in ("lru", "planned"):
        measured.no_tensor = 400 * MIB
        with recoup.budget("auto", policy=policy) as run:
            measured.no_tensor = 510 * MIB
            model(torch.ones(3)).sum().backward()
            optimizer.step()
            assert run.stats().external_bytes >= 10 * MIB
    with recoup.budget("50%") as run:
        asked = measured.asked
        optimizer.step()
        assert measured.asked == asked and run.stats().external_bytes < MIB


def test_a_pool_in_use_returns_pages(
    leave_free: LeaveFree, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = resident.pools
    leave_free(400 * MIB)
    before = set(real())
    measured = Measured(monkeypatch)
    with recoup.budget("auto", policy="lru") as run:
        assert run.stats().budget_bytes == 200 * MIB
        base = torch.ones(MIB)
        made = [base * i for i in range(45)]
        backing = sum(size for at, size in real().items() if at not in before)
        assert 180 * MIB < backing <= 202 * MIB
        measured.no_tensor += 150 * MIB
        run.mark_step()
        assert run.stats().evictions > 0
        # The real memory of the pool, and not only its accounting.
        backing = sum(size for at, size in real().items() if at not in before)
        assert backing <= 152 * MIB
        assert [each[0].item() for each in made[::9]] == [0, 9, 18, 27, 36]
        del made, base


def test_a_trace_with_the_charge_can_be_simulated(
    leave_free: LeaveFree, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    measured = Measured(monkeypatch)
    with recoup.budget("auto", trace=tmp_path / "run.rtrace") as run:
        budget = run.stats().budget_bytes
        base = torch.ones(MIB)
        made = [base * i for i in range(9)]
        measured.no_tensor += 130 * MIB
        run.mark_step()
        assert [each[0].item() for each in made[::4]] == [0, 4, 8]
    trace = recoup.Trace.read(tmp_path / "run.rtrace")
    assert trace.simulate(budget).status == "ok"
    # The charge for other memory is part of the trace's need.
    assert trace.simulate(25 * MIB).status != "ok"


def test_an_exception_in_the_body_ends_the_charge(
    leave_free: LeaveFree, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = Measured(monkeypatch)
    with pytest.raises(KeyError), recoup.budget("auto") as run:
        measured.no_tensor += 130 * MIB
        run.mark_step()
        assert run.stats().external_bytes == 30 * MIB
        raise KeyError
    assert run.stats().external_bytes == 0
    with recoup.budget("64MiB") as again:
        assert again.stats().external_bytes == 0


def test_growth_that_cannot_be_charged_gives_a_warning(
    leave_free: LeaveFree, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = Measured(monkeypatch)
    with recoup.budget("auto") as run:
        measured.no_tensor = 2 * GIB
        with pytest.warns(recoup.RecoupWarning) as warned:
            run.mark_step()
        text = str(warned[0].message)
        assert "grew by 1.6 GiB since the scope began, 1.5 GiB more than" in text
        assert "'auto'" in text and "give a smaller budget, as a size or in percent" in text
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            run.mark_step()
        measured.no_tensor = 510 * MIB
        run.mark_step()
        run.mark_step()
        assert run.stats().external_bytes == 10 * MIB
        assert torch.ones(3).add(1).tolist() == [2, 2, 2]


def test_the_resident_memory_of_a_pool_is_found() -> None:
    before = set(resident.pools())
    with recoup.budget("64MiB"):
        assert [size for at, size in resident.pools().items() if at not in before] < [3 * MIB]
        kept = torch.ones(8, MIB)
        (pool,) = (size for at, size in resident.pools().items() if at not in before)
        assert 32 * MIB <= pool <= 36 * MIB
        taken = resident.process()
        assert taken.taken > pool and 0 < taken.files < taken.taken
    (left,) = (size for at, size in resident.pools().items() if at not in before)
    assert 32 * MIB <= left <= 36 * MIB
    del kept
    assert set(resident.pools()) == before
