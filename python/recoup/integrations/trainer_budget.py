"""A callback for transformers.Trainer.

from recoup.integrations import TrainerBudget

budget = TrainerBudget("4GiB")
Trainer(model, arguments, train_dataset=data, callbacks=[budget]).train()
print(budget.run.report())
"""

import functools
from collections.abc import Callable
from typing import Any

from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.utils import logging

import recoup
from recoup.integrations.held_scope import HeldScope

_logger = logging.get_logger("transformers.recoup")


class TrainerBudget(TrainerCallback):
    """Runs `train` inside `recoup.budget`, whose arguments it takes.

    Adds the run's metrics to what the trainer logs, and logs its report at the end.
    """

    def __init__(self, budget: int | str, **options: Any) -> None:
        self._scope = HeldScope(budget, **options)

    @property
    def run(self) -> recoup.Run | None:
        """The run of the last training; None before the first."""
        return self._scope.run

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self._scope.enter()

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **said: Any
    ) -> None:
        for logs in (said["logs"], *state.log_history[-1:]):
            logs.update(self._scope.metrics())

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self.leave()

    def leave(self, error: BaseException | None = None) -> None:
        """Ends the scope if it is open."""
        if self._scope.leave(error) and self.run is not None:
            _logger.info(self.run.report())


def _watched(train: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps `Trainer.train` to call `TrainerBudget` first and to end its scope on a failure.

    transformers calls no hook when a training fails, and reporting callbacks before a user's.
    """

    @functools.wraps(train)
    def wrapper(self: Trainer, *args: Any, **kwargs: Any) -> Any:
        callbacks = self.callback_handler.callbacks
        callbacks.sort(key=lambda each: not isinstance(each, TrainerBudget))
        try:
            return train(self, *args, **kwargs)
        except BaseException as error:
            for each in callbacks:
                if isinstance(each, TrainerBudget):
                    each.leave(error)
            raise

    return wrapper


Trainer.train = _watched(Trainer.train)
