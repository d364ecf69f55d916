"""docs/recipes.md: the blocks that need frameworks, as they stand."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
import transformers

import compare
import recoup
import recoup.integrations
from models import Texts, gpt2, llama
from test_lightning import Language

sys.path.append(str(Path(__file__).parents[1] / "python" / "support"))

import recipes


class Report:
    """Of a run that was none."""

    def report(self) -> str:
        return ""


class NoTrainerBudget(transformers.TrainerCallback):
    run = Report()


class NoLightningBudget(lightning.Callback):
    run = Report()


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks write files."""
    monkeypatch.chdir(tmp_path)


def block(heading: str, **names: Any) -> dict[str, Any]:
    return recipes.run(recipes.RECIPES[heading], **names)


def train_a_trainer() -> tuple[Any, compare.Trained]:
    names = block("transformers.Trainer", language_model=gpt2(), texts=Texts(64))
    loss = names["trainer"].state.log_history[-1]["train_loss"]
    weights = compare.copies(names["language_model"].state_dict())
    return names["budget"].run, compare.Trained([loss], weights)


def train_lightning() -> tuple[Any, compare.Trained]:
    module = Language()
    texts = torch.utils.data.DataLoader(Texts(32), batch_size=8)
    names = block("Lightning", module=module, texts=texts)
    return names["budget"].run, compare.Trained(module.losses, compare.copies(module.state_dict()))


def check_callback(
    monkeypatch: pytest.MonkeyPatch,
    train: Callable[[], tuple[Any, compare.Trained]],
    name: str,
    none: type,
) -> None:
    """The block computes what it does with a callback that does nothing, and in its budget."""
    run, ours = train()
    assert isinstance(run, recoup.Run) and not recoup._C.active()
    monkeypatch.setattr(recoup.integrations, name, lambda *_: none())
    _, plain = train()
    compare.assert_same(plain, ours)
    recipes.assert_squeezed(run.stats())


def trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    check_callback(monkeypatch, train_a_trainer, "TrainerBudget", NoTrainerBudget)


def lightning_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    check_callback(monkeypatch, train_lightning, "LightningBudget", NoLightningBudget)


def largest_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    names = block("The largest batch that fits")
    size, losses = names["batch_size"], names["losses"]
    # Larger ones did not fit, and this one would not without evictions.
    assert 0 < size < 2048 and not recoup._C.active()
    source = f"losses = [train_step(batch) for batch in torch.cat(loader).split({size})]"
    assert losses == recipes.run(source)["losses"]
    with recoup.budget("1GiB") as run:
        recipes.run(source)
    assert run.stats().peak_bytes > 8 * 2**20


def quantized(_: pytest.MonkeyPatch) -> None:
    def train(**names: Any) -> tuple[recoup.Run | None, compare.Trained]:
        texts = torch.utils.data.DataLoader(Texts(32), batch_size=8)
        names = block("Quantized weights with LoRA", language_model=llama(), texts=texts, **names)
        trained = {n: p for n, p in names["model"].named_parameters() if p.requires_grad}
        losses = [loss.item() for loss in names["losses"]]
        return names.get("run"), compare.Trained(losses, compare.copies(trained))

    def train_plain() -> compare.Trained:
        return train(recoup=recipes.without_recoup())[1]

    run, ours = train()
    compare.assert_same(train_plain(), ours)
    assert isinstance(run, recoup.Run)
    recipes.assert_squeezed(run.stats())
    # docs/frameworks.md says this.
    assert run.stats().budget_bytes < 0.5 * compare.peak_of(train_plain)


CHECKS = {
    "transformers.Trainer": trainer,
    "Lightning": lightning_trainer,
    "Quantized weights with LoRA": quantized,
    "The largest batch that fits": largest_batch,
}


@pytest.mark.parametrize("heading", recipes.IN_FRAMEWORKS)
def test_recipe(heading: str, monkeypatch: pytest.MonkeyPatch) -> None:
    CHECKS[heading](monkeypatch)


def test_every_test_is_of_a_recipe() -> None:
    assert set(CHECKS) == set(recipes.IN_FRAMEWORKS) <= recipes.RECIPES.keys()
