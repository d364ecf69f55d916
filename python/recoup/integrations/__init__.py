"""Callbacks that train inside a budget, for frameworks with a training loop of their own.

Example::

    from recoup.integrations import TrainerBudget    # for transformers.Trainer
    from recoup.integrations import LightningBudget  # for lightning.Trainer

A framework is imported when its callback is first accessed.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recoup.integrations.lightning_budget import LightningBudget
    from recoup.integrations.trainer_budget import TrainerBudget

__all__ = ["LightningBudget", "TrainerBudget"]

_PACKAGES = {"LightningBudget": "lightning", "TrainerBudget": "transformers"}
_MODULES = {"LightningBudget": "lightning_budget", "TrainerBudget": "trainer_budget"}

if not TYPE_CHECKING:  # a type checker would accept every misspelt name

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            module = importlib.import_module(f"{__name__}.{_MODULES[name]}")
        except ModuleNotFoundError as error:
            package = _PACKAGES[name]
            if error.name is None or error.name.partition(".")[0] != package:
                raise
            raise ModuleNotFoundError(
                f"{name} needs the package {package}: pip install {package}", name=error.name
            ) from None
        found = getattr(module, name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
