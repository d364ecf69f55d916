"""Trainings that are stopped when their replays take too long."""

import signal
from collections.abc import Callable
from typing import Any, TypeVar

from torch import Tensor
from torch.nn.modules.module import register_module_forward_hook
from torch.utils._pytree import tree_leaves

import recoup
from recoup.bench.simulated import FEASIBLE_RATIO
from recoup.bench.trial import call_in

_T = TypeVar("_T")


class TooSlowError(Exception):
    """Raised when replays cost more than a feasible budget allows."""


class Patience:
    """Ends a training with TooSlowError when its replays cost more than `limit_ns`.

    A timer triggers the check, but Python handles signals only between two of its instructions.
    Backward runs none, so every module's output gets an empty hook.
    """

    def __init__(self, run: recoup.Run, limit_ns: float) -> None:
        self.run, self.limit_ns = run, limit_ns

    def look(self, *_: Any) -> None:
        if self.run.stats().replay_cost_ns > self.limit_ns:
            raise TooSlowError

    def add_hook(self, module: Any, args: Any, out: Any) -> None:
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor) and tensor.requires_grad:
                tensor.register_hook(lambda gradient: None)  # type: ignore[no-untyped-call]

    def __enter__(self) -> None:
        self.hook = register_module_forward_hook(self.add_hook)
        signal.signal(signal.SIGALRM, self.look)
        signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)

    def __exit__(self, *_: Any) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        self.hook.remove()


def train_in(
    budget: int, plain_ns: int, train: Callable[[], _T], **options: Any
) -> tuple[_T, recoup.Stats]:
    """The result of a training in a budget, and its statistics.

    plain_ns: cost of the training's ops. Raises OutOfBudgetError, or TooSlowError if it costs more
    than FEASIBLE_RATIO times that; the scope has ended in any case.
    """
    limit_ns = (FEASIBLE_RATIO - 1) * plain_ns
    trained, stats = call_in(
        budget,
        train,
        guard=lambda run: Patience(run, limit_ns),
        stops=(TooSlowError, recoup.OutOfBudgetError),
        **options,
    )
    if stats.replay_cost_ns > limit_ns:
        raise TooSlowError
    return trained, stats
