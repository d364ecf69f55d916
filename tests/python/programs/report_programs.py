"""Small random programs for reports of runs: they train, evict, have escapes, and may fail."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import recoup
from recoup.bench.flat_options import split

WIDTH = 32
KIB = 1 << 10
ENDINGS = ("well", "well", "error", "memory", "interrupt", "exit", "nothing")


class OnPurposeError(Exception):
    """The error that a program raises when it is to fail."""


class Wide(nn.Module):
    """A block with an in-place op and a residual connection."""

    def __init__(self, factor: int) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, factor * WIDTH)
        self.down = nn.Linear(factor * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(functional.relu_(self.up(x)))


class Breaks(nn.Module):
    """Raises `error` in call number `calls`; if it is None, allocates more than the budget."""

    def __init__(self, calls: int, error: BaseException | None) -> None:
        super().__init__()
        self.calls = calls
        self.error = error

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls -= 1
        if self.calls:
            return x
        if self.error is None:
            return x.repeat(1 << 12, 4)
        x.sin()
        raise self.error


@dataclass
class Outcome:
    """A run, how its program ended, and its budgets in order."""

    run: recoup.Run
    ending: str
    error: BaseException | None
    budgets: list[int] = field(default_factory=list)


class Program:
    """A program that a seed defines; it is the same in every run."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.ending = ENDINGS[seed % len(ENDINGS)]
        self._seed = seed
        self._rows = self._chance.choice((64, 256, 700))
        self._depth = self._chance.randrange(1, 5)
        self._steps = self._chance.randrange(1, 4)
        self._fails_in = self._chance.randrange(self._steps)
        self.options: dict[str, Any] = {}
        if self._chance.random() < 0.4:
            self.options["spill"] = "64MiB"
        if self._chance.random() < 0.4:
            self.options["policy"] = self._chance.choice(("dtr", "lru", "coop", "random"))
        self._kept: list[Any] = []

    def run(self, budget: int | str, fraction: float = 1.0) -> Outcome:
        """Runs the program in `budget`. With `fraction` below 1, it may change its budget."""
        torch.manual_seed(self._seed)
        self._kept.clear()
        error: BaseException | None = None
        try:
            with recoup.budget(budget, profile="timeline", **split(self.options)) as run:
                budgets = [run.stats().budget_bytes]
                self._body(run, budgets, fraction)
        except (recoup.OutOfBudgetError, OnPurposeError, KeyboardInterrupt) as raised:
            error = raised
        self._kept.clear()
        return Outcome(run, self.ending, error, budgets)

    def _body(self, run: recoup.Run, budgets: list[int], fraction: float) -> None:
        if self.ending == "nothing":
            raise OnPurposeError("before any op\nand more lines")
        model = self._model()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        for _ in range(self._steps):
            x, y = torch.randn(self._rows, WIDTH), torch.randint(WIDTH, (self._rows,))
            loss = functional.cross_entropy(model(x), y)
            self._disturb(run, budgets, loss, x, fraction)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if self.ending == "exit":
            # Each is small compared with the budget, but their sum exceeds it.
            size = run.stats().budget_bytes // 8
            base = torch.randn(size // 4)
            self._kept += [base * i for i in range(12)]

    def _model(self) -> nn.Sequential:
        makers: tuple[Callable[[], nn.Module], ...] = (
            lambda: Wide(self._chance.randrange(1, 5)),
            lambda: nn.Sequential(nn.LayerNorm(WIDTH), nn.GELU()),
            lambda: nn.Dropout(0.2),
            lambda: nn.BatchNorm1d(WIDTH),
        )
        model = nn.Sequential(
            nn.Linear(WIDTH, WIDTH), *(self._chance.choice(makers)() for _ in range(self._depth))
        )
        errors: dict[str, BaseException | None] = {
            "memory": None,
            "error": OnPurposeError("on purpose\nand more lines"),
            "interrupt": KeyboardInterrupt(),
        }
        if self.ending in errors:
            broken = Breaks(self._fails_in + 1, errors[self.ending])
            model.insert(self._chance.randrange(1, len(model) + 1), broken)
        return model

    def _disturb(
        self,
        run: recoup.Run,
        budgets: list[int],
        loss: torch.Tensor,
        x: torch.Tensor,
        fraction: float,
    ) -> None:
        chance = self._chance
        if chance.random() < 0.3:
            self._kept.append(loss.detach().numpy())
        if chance.random() < 0.3:
            noise = torch.randn(self._rows, WIDTH).mul_(2.0)
            kept = noise.exp()
            recoup.evict(kept)
            self._kept.append(kept.cos_() if chance.random() < 0.5 else kept + 1)
        if chance.random() < 0.2:
            run.mark_step("half")
        if chance.random() < 0.2 and fraction < 1:
            run.set_budget(int(run.stats().budget_bytes * 1.25))
            budgets.append(run.stats().budget_bytes)
            self._kept.append(x * 3)
            run.set_budget(int(run.stats().budget_bytes * 0.9))
            budgets.append(run.stats().budget_bytes)
