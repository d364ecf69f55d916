"""A callback for lightning.Trainer.

from recoup.integrations import LightningBudget

budget = LightningBudget("4GiB")
lightning.Trainer(callbacks=[budget]).fit(module, loader)
print(budget.run.report())
"""

import logging
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

import recoup
from recoup.integrations.held_scope import HeldScope

_logger = logging.getLogger("lightning.pytorch.recoup")


class LightningBudget(Callback):
    """Runs `fit` inside `recoup.budget`, whose arguments it takes.

    Logs the run's metrics every `log_every_n_steps`, and its report at the end.
    """

    def __init__(self, budget: int | str, **options: Any) -> None:
        self._scope = HeldScope(budget, **options)

    @property
    def run(self) -> recoup.Run | None:
        """The run of the last fit; None before the first."""
        return self._scope.run

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._scope.enter()

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        if trainer.global_step % trainer.log_every_n_steps == 0:
            for logger in trainer.loggers:
                logger.log_metrics(self._scope.metrics(), step=trainer.global_step)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._leave()

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        self._leave(exception)

    def _leave(self, error: BaseException | None = None) -> None:
        if self._scope.leave(error) and self.run is not None:
            _logger.info(self.run.report())
