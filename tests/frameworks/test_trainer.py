"""transformers.Trainer."""

from pathlib import Path
from typing import Any

import pytest
import transformers

import compare
import recoup
from compare import Trained, check, copies
from models import Texts, gpt2

CASES: dict[str, dict[str, Any]] = {
    "fp32": {},
    "bf16": {"bf16": True},
    "accumulation": {"gradient_accumulation_steps": 3},
    "evaluation": {"eval_strategy": "steps", "eval_steps": 2},
    "checkpointing": {"gradient_checkpointing": True, "per_device_train_batch_size": 16},
}


def trainer_of(folder: Path, **options: Any) -> transformers.Trainer:
    arguments = transformers.TrainingArguments(
        **{
            "output_dir": str(folder),
            "use_cpu": True,
            "max_steps": 6,
            "per_device_train_batch_size": 8,
            "logging_steps": 1,
            "save_strategy": "no",
            "report_to": [],
            "disable_tqdm": True,
            "seed": 3,
            **options,
        }
    )
    return transformers.Trainer(gpt2(), arguments, train_dataset=Texts(64), eval_dataset=Texts(16))


def result_of(trainer: transformers.Trainer) -> Trained:
    keys = ("loss", "grad_norm", "eval_loss")
    logged = [row[key] for row in trainer.state.log_history for key in keys if key in row]
    return Trained(logged, copies(trainer.model.state_dict()))


@pytest.mark.parametrize("name", CASES)
def test_trains_as_without(name: str, tmp_path: Path) -> None:
    def train() -> Trained:
        trainer = trainer_of(tmp_path, **CASES[name])
        trainer.train()
        return result_of(trainer)

    check(f"Trainer, {name}", train)


def test_saves_and_resumes(tmp_path: Path) -> None:
    """What goes on from a checkpoint that was saved in a budget is what never stopped."""
    save = {"save_strategy": "steps", "save_steps": 3}
    checkpoint = tmp_path / "checkpoint-3"

    def whole() -> Trained:
        trainer = trainer_of(compare.empty(tmp_path), **save)
        trainer.train()
        return result_of(trainer)

    def resumed() -> Trained:
        trainer = trainer_of(tmp_path, **save)
        trainer.train(resume_from_checkpoint=str(checkpoint))
        return result_of(trainer)

    plain = whole()
    peak = compare.peak_of(whole)
    budget = int(compare.FRACTION * peak)
    with recoup.budget(budget) as run:
        saved = whole()
    compare.assert_same(plain, saved)
    compare.assert_squeezed("Trainer, saved", run.stats(), peak)
    with recoup.budget(budget) as run:
        again = resumed()
    compare.assert_same(plain, again)
    compare.assert_squeezed("Trainer, resumed", run.stats(), peak)


def test_saving_leaves_as_much_to_evict(tmp_path: Path) -> None:
    """A library that saves asks parameters for their addresses, and is trusted with them."""

    def train() -> Trained:
        trainer = trainer_of(tmp_path, save_strategy="steps", save_steps=2)
        trainer.train()
        return result_of(trainer)

    check("Trainer, saved, 30 %", train, fraction=0.3)
