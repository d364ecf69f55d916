"""Functions for single tensors and ops of the program."""

import contextlib
from collections.abc import Iterator

import torch

from recoup import _C
from recoup._patching import compiled_plan


def evict(tensor: torch.Tensor) -> bool:
    """Evicts the tensor's storage if it can be restored.

    Returns whether the storage is evicted now. The program's results do not change: the next op
    that needs the bytes restores them.
    """
    _require_tensor(tensor, "evict")
    return _C.evict(tensor)


def is_resident(tensor: torch.Tensor) -> bool:
    """Whether the tensor's storage has its bytes; true for tensors that no scope manages."""
    _require_tensor(tensor, "is_resident")
    return _C.is_resident(tensor)


def materialize(tensor: torch.Tensor) -> None:
    """Restores the bytes of the tensor's storage if it is evicted.

    It may be evicted again later; see `pin`. Raises OutOfBudgetError if the bytes do not fit.
    """
    _require_tensor(tensor, "materialize")
    _C.materialize(tensor)


@contextlib.contextmanager
def pin(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """A `with` block in which the tensor's storage is resident and stays at its address.

    Raises OutOfBudgetError if its bytes do not fit.
    """
    _require_tensor(tensor, "pin")
    held = _C.pin(tensor)
    try:
        yield tensor
    finally:
        held.release()


def _require_tensor(value: object, name: str) -> None:
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"recoup.{name} takes a tensor; got {type(value).__name__}")


def allow_replay(name: str) -> None:
    """Allows replays of a custom op, which must compute its outputs from its inputs alone.

    A replay passes other tensor objects with equal content, so the op must not depend on whether
    two arguments are the same object.
    name: the op as "namespace::op". Without this call the op's results are never evicted. Raises
        ValueError for text of another form.
    """
    namespace, _, op = name.partition("::") if isinstance(name, str) else ("", "", "")
    if not namespace or not op:
        raise ValueError(
            f"recoup.allow_replay takes the name of an op as 'namespace::op'; got {name!r}"
        )
    _C.allow_replay(name)
    compiled_plan.forget_plans()
