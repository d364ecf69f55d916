"""Subclasses of Tensor with `__torch_dispatch__` and their own storage."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._mode_utils import no_dispatch
from torch.utils._pytree import tree_map

from differential import Hand, N, both, made


class Logged(torch.Tensor):
    """Calls the ops on the tensors themselves, with the dispatch to Python disabled."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with no_dispatch():
            result = func(*args, **(kwargs or {}))
        return tree_map(lambda x: x.as_subclass(cls) if type(x) is torch.Tensor else x, result)


def as_subclass(x: torch.Tensor) -> torch.Tensor:
    return x.as_subclass(Logged)


def make_subclass(x: torch.Tensor) -> torch.Tensor:
    return torch.Tensor._make_subclass(Logged, x)


def plain(x: torch.Tensor) -> torch.Tensor:
    with no_dispatch():
        return x.as_subclass(torch.Tensor) * 1


HOWS = pytest.mark.parametrize("how", [as_subclass, make_subclass])
How = Callable[[torch.Tensor], torch.Tensor]


@HOWS
def test_a_write_makes_a_version(how: How) -> None:
    def program(hand: Hand) -> object:
        x = made()
        before = x + 1
        whole = how(x)
        hand.try_evict(before)
        whole.mul_(3)
        hand.try_evict(before, x)
        after = x + 1
        hand.try_evict(before, after)
        return before, after, x

    both(program)


@HOWS
def test_evicted_tensors_are_rematerialized(how: How) -> None:
    def program(hand: Hand) -> object:
        x = made()
        whole = how(x)
        hand.try_evict(x)
        total = whole + 1
        part = whole[: N // 2]
        hand.try_evict(x)
        return plain(total), plain(part.add(whole[N // 2 :])), x

    both(program)
    both(program, evict_after_op=True)
