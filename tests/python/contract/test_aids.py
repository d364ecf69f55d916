"""RECOUP_TEST_AIDS runs any unchanged suite under disturbances and faults."""

import pytest
import torch

import recoup

N = 1 << 14


def program() -> float:
    torch.manual_seed(0)
    x = torch.randn(64, N // 64)
    values = [x]
    for _ in range(8):
        values.append(torch.tanh(values[-1] * 1.5))
    return float(torch.stack([value.sum() for value in values]).sum())


@pytest.mark.parametrize("aids", ["poison", "shake", "poison,shake", "force-eviction=3,persistent"])
def test_disturbances_change_no_bit(aids: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = program()
    monkeypatch.setenv("RECOUP_TEST_AIDS", aids)
    with recoup.budget("8MiB") as run:
        assert program() == plain
    assert aids == "poison" or run.stats().evictions > 0


def test_a_fault_is_reported_and_a_retry_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = program()
    monkeypatch.setenv("RECOUP_TEST_AIDS", "fail-allocation=5")
    with recoup.budget("8MiB"):
        with pytest.raises(recoup.OutOfBudgetError, match="a test aid made allocation 5 fail"):
            program()
        assert program() == plain
    monkeypatch.setenv("RECOUP_TEST_AIDS", "shake,fail-replay=1")
    with recoup.budget("8MiB"):
        with pytest.raises(RuntimeError, match="a test aid made replay 1 fail"):
            program()
        assert program() == plain


def test_unknown_aids_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOUP_TEST_AIDS", "poisson")
    with pytest.raises(ValueError, match="'poisson' is not a test aid"), recoup.budget("8MiB"):
        pass
