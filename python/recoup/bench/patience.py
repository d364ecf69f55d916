"""Trainings that end when their replays take too long."""

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
    """Replays have taken more than a feasible budget may cost."""


class Patience:
    """Ends a training with TooSlowError when its replays take longer than `limit_ns`.

    Looks when a timer tells it to, which Python hears of between two of its own instructions.
    Backward runs none, so every module's output gets a hook that does nothing but be called.
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
    """What a training in a budget returns, and what it took. `plain_ns`: what its ops cost.

    Raises OutOfBudgetError, or TooSlowError when it takes more than FEASIBLE_RATIO times as long;
    the scope is over in any case.
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
