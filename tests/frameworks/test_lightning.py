"""lightning.Trainer, and recoup.integrations.LightningBudget."""

import csv
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger

import compare
import recoup
from compare import Trained, check, copies
from models import Texts, gpt2
from recoup.integrations import LightningBudget


class Language(lightning.LightningModule):
    def __init__(self, stop_at: int | None = None) -> None:
        super().__init__()
        self.model = gpt2()
        self.losses: list[float] = []
        self.stop_at = stop_at

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        if self.stop_at == index:
            raise ValueError("stop")
        loss: torch.Tensor = self.model(**batch).loss
        self.losses.append(loss.item())
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        self.losses.append(self.model(**batch).loss.item())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def fit(folder: Path, *callbacks: lightning.Callback, **options: Any) -> Trained:
    torch.manual_seed(7)
    module = Language(**options)
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=2,
        log_every_n_steps=1,
        logger=CSVLogger(folder),
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        gradient_clip_val=1.0,
        callbacks=list(callbacks),
    )
    loader = torch.utils.data.DataLoader(Texts(32), batch_size=8, shuffle=True)
    trainer.fit(module, loader, torch.utils.data.DataLoader(Texts(8), batch_size=8))
    return Trained(module.losses, copies(module.state_dict()))


def test_fits_as_without(tmp_path: Path) -> None:
    check("Lightning", lambda: fit(tmp_path))


def test_the_callback_fits_inside(tmp_path: Path) -> None:
    plain = fit(tmp_path / "plain")
    peak = compare.peak_of(lambda: fit(tmp_path / "peak"))
    budget = LightningBudget(int(compare.SHARE * peak))
    assert budget.run is None
    compare.assert_same(plain, fit(tmp_path / "budget", budget))
    assert budget.run is not None and not recoup._C.active()
    compare.assert_squeezed("LightningBudget", budget.run.stats(), peak)
    [file] = (tmp_path / "budget").rglob("metrics.csv")
    with file.open() as text:
        rows = [row for row in csv.DictReader(text) if row["recoup_replays"]]
    assert len(rows) == 8 and float(rows[-1]["recoup_replays"]) > 0


def test_the_callback_leaves_when_a_fit_fails(tmp_path: Path) -> None:
    budget = LightningBudget("1GiB")
    with pytest.raises(ValueError, match="stop"):
        fit(tmp_path, budget, stop_at=2)
    assert not recoup._C.active()
    assert budget.run is not None and budget.run.stats().op_count > 0
    fit(tmp_path, budget)
    assert not recoup._C.active()
