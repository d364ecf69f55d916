"""recoup.integrations.TrainerBudget: the scope, from the first hook to the last or an exception."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import compare
import recoup
from recoup.integrations import TrainerBudget
from test_trainer import result_of, trainer_of


class Stopping(transformers.TrainerCallback):
    """Raises in the third step."""

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == 3:
            raise ValueError("stop")


class Reporting(transformers.TrainerCallback):
    """Keeps what is logged, as those that report to a service get it."""

    def __init__(self) -> None:
        self.logs: list[dict[str, float]] = []

    def on_log(self, args: Any, state: Any, control: Any, *, logs: Any, **_: Any) -> None:
        self.logs.append(dict(logs))


def peak_of_training(folder: Path) -> int:
    return compare.peak_of(lambda: (trainer_of(folder).train(), result_of(trainer_of(folder)))[1])


def test_trains_inside(tmp_path: Path) -> None:
    plain = trainer_of(tmp_path)
    plain.train()
    peak = peak_of_training(tmp_path)
    budget, reporting = TrainerBudget(int(compare.SHARE * peak)), Reporting()
    trainer = trainer_of(tmp_path)
    for callback in (reporting, budget):
        trainer.add_callback(callback)
    assert budget.run is None
    trainer.train()
    assert not recoup._C.active()
    compare.assert_same(result_of(plain), result_of(trainer))
    assert budget.run is not None
    compare.assert_squeezed("TrainerBudget", budget.run.stats(), peak)
    assert "replays" in budget.run.report()
    for rows in (reporting.logs, trainer.state.log_history):
        replays = [row["recoup_replays"] for row in rows]
        assert len(rows) == 7 and replays == sorted(replays) and replays[-1] > 0
        assert all(row["recoup_peak_bytes"] <= row["recoup_budget_bytes"] for row in rows)
        assert all(0 <= row["recoup_replay_time_ratio"] < math.inf for row in rows)


def test_is_left_when_training_fails(tmp_path: Path) -> None:
    budget = TrainerBudget("1GiB")
    trainer = trainer_of(tmp_path)
    for callback in (Stopping(), budget):
        trainer.add_callback(callback)
    with pytest.raises(ValueError, match="stop"):
        trainer.train()
    assert not recoup._C.active()
    trainer.remove_callback(Stopping)
    trainer.train()
    assert not recoup._C.active()
    trainer.evaluate()
    assert "recoup_replays" not in trainer.state.log_history[-1]


def test_a_budget_that_is_too_small_says_so(tmp_path: Path) -> None:
    budget = TrainerBudget("2MiB")
    trainer = trainer_of(tmp_path)
    trainer.add_callback(budget)
    with pytest.raises(recoup.OutOfBudgetError):
        trainer.train()
    assert not recoup._C.active()
    assert torch.ones(3).sum().item() == 3


def test_other_trainers_are_as_they_were(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path)
    trainer.train()
    assert all("recoup_replays" not in row for row in trainer.state.log_history)


def test_wrong_arguments_are_refused_at_once() -> None:
    with pytest.raises(ValueError, match="policy"):
        TrainerBudget("1GiB", policy="none")
