"""The states of the random generators that a program uses without naming one."""

import functools
import pickle
import random
import sys
from collections.abc import Callable
from typing import Any

import torch

from recoup._verify.bits import digest_of_bytes


def generator_states() -> dict[str, str]:
    """Digests of the states, by the name of the generator."""
    return {name: digest_of_bytes(_bytes_of(state)) for name, (state, _) in _states().items()}


class SavedGenerators:
    """The states at the time of construction."""

    def __init__(self) -> None:
        if torch.cuda.is_available():
            torch.cuda.init()  # type: ignore[no-untyped-call]  # else its generators are unknown
        self._saved = _states()

    def restore(self) -> None:
        """Gives the generators the saved states. Those of libraries loaded later keep theirs."""
        for state, put in self._saved.values():
            put(state)


def _states() -> dict[str, tuple[Any, Callable[[Any], None]]]:
    """The state of each generator, and the function that sets it."""
    states: dict[str, tuple[Any, Callable[[Any], None]]] = {
        "torch": (torch.get_rng_state(), torch.set_rng_state),
        "random": (random.getstate(), random.setstate),
    }
    if numpy := sys.modules.get("numpy"):
        states["numpy"] = numpy.random.get_state(), numpy.random.set_state
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        for index, state in enumerate(torch.cuda.get_rng_state_all()):
            put = functools.partial(torch.cuda.set_rng_state, device=index)
            states[f"cuda:{index}"] = state, put
    return states


def _bytes_of(state: Any) -> bytes:
    if isinstance(state, torch.Tensor):
        return state.numpy().tobytes()
    return pickle.dumps(state, protocol=4)
