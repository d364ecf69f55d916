"""The ops of one step: what each one read and wrote, as digests."""

import dataclasses
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

from recoup._patching import module_names
from recoup._verify.bits import digest, digest_of_storage, has_storage

_UNINITIALIZED = "uninitialized"


@dataclasses.dataclass(frozen=True)
class LoggedOp:
    """An op of a program."""

    name: str
    """Name of the op with its overload, such as aten.mul.Tensor."""
    module: str
    """The module whose code ran the op, or whose backward pass ran it; may be empty."""
    in_backward: bool
    """Whether a backward pass ran it."""
    is_recomputed: bool
    """Whether a module's code ran it within a backward pass."""
    operands: tuple[str, ...]
    """Digests of the tensors that it was given."""
    arguments: str
    """Its other arguments."""
    results: tuple[str, ...]
    """Digests of its results, and of the operands that it wrote."""
    draws: bool
    """Whether it draws random numbers."""


class OpLog(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Writes the ops that run while the mode is active to a file."""

    def __init__(self, file: TextIO) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._file = file
        self._thread = threading.get_ident()
        self._is_active = True
        # Modules by the number of the autograd node that an op of theirs made.
        self._forward: dict[int, str] = {}
        # Storages that no op has written yet, and digests of their bytes, by address. The weak
        # reference keeps the address from being used again.
        self._fresh: dict[int, tuple[StorageWeakRef, str]] = {}

    def stop(self) -> None:
        """Ends the log. Ends the mode too, if it is the innermost one of this thread."""
        self._is_active = False
        if _get_current_dispatch_mode() is self:
            self.__exit__(None, None, None)  # type: ignore[no-untyped-call]
            self._thread = 0

    def leave(self) -> None:
        """Ends the mode, after the modes that the program entered within it have ended."""
        self._is_active = False
        if self._thread == threading.get_ident():
            self.__exit__(None, None, None)  # type: ignore[no-untyped-call]
            self._thread = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if not self._is_active:
            return func(*args, **kwargs)
        given = [each for each in _pytree.tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        others = [
            each for each in _pytree.tree_leaves((args, kwargs)) if not isinstance(each, Tensor)
        ]
        operands = tuple(self._digest(each) for each in given)
        module, in_backward, is_recomputed = self._place()
        made = func(*args, **kwargs)
        results = [each for each in _pytree.tree_leaves(made) if isinstance(each, Tensor)]
        if _makes_uninitialized(func):
            self._remember_fresh(results)
        # Not as the schema says: some ops write operands that it does not mark.
        after = tuple(self._digest(each) for each in given)
        written = [new for old, new in zip(operands, after, strict=True) if old != new]
        op = LoggedOp(
            name=str(func),
            module=module,
            in_backward=in_backward,
            is_recomputed=is_recomputed,
            operands=operands,
            arguments=_text(others),
            results=(*(self._digest(each) for each in results), *written),
            draws=torch.Tag.nondeterministic_seeded in func.tags,
        )
        self._file.write(json.dumps(dataclasses.astuple(op)) + "\n")
        return made

    def _digest(self, tensor: Tensor) -> str:
        return _UNINITIALIZED if has_storage(tensor) and self._is_fresh(tensor) else digest(tensor)

    def _remember_fresh(self, made: list[Tensor]) -> None:
        for tensor in filter(has_storage, made):
            storage = tensor.untyped_storage()
            self._fresh[storage._cdata] = _weak(storage), digest_of_storage(tensor)

    def _is_fresh(self, tensor: Tensor) -> bool:
        address = tensor.untyped_storage()._cdata
        known = self._fresh.get(address)
        if known is None:
            return False
        if _is_gone(known[0]) or known[1] != digest_of_storage(tensor):
            del self._fresh[address]
            return False
        return True

    def _place(self) -> tuple[str, bool, bool]:
        """The module of the running op, whether it runs in backward, whether it is recomputed."""
        node = torch._C._current_autograd_node()
        inside = module_names.current()
        if inside is not None:
            module = _path(inside)
            if node is None:
                # The node of the op has been made before the op reaches a mode.
                self._forward.setdefault(torch.autograd._get_sequence_nr() - 1, module)
            return module, node is not None, node is not None
        if node is None:
            return "", False, False
        return self._forward.get(node._sequence_nr(), ""), True, False


def read_log(path: Path) -> Iterator[LoggedOp]:
    """The ops that an OpLog has written."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            name, module, backward, again, operands, rest, results, draws = json.loads(line)
            yield LoggedOp(
                name, module, backward, again, tuple(operands), rest, tuple(results), draws
            )


def _path(module: int) -> str:
    name = module_names.MODULES[module]
    return f"{name.kind}.{name.path}" if name.path else name.kind


def _weak(storage: torch.UntypedStorage) -> StorageWeakRef:
    return StorageWeakRef(storage)  # type: ignore[no-untyped-call]


def _is_gone(storage: StorageWeakRef) -> bool:
    return bool(storage.expired())  # type: ignore[no-untyped-call]


def _makes_uninitialized(func: Any) -> bool:
    return "empty" in str(func._schema.name).rpartition("::")[2]


def _text(values: list[Any]) -> str:
    """The arguments that are no tensors; an object's address is no part of it."""
    plain = bool | int | float | complex | str | torch.dtype | torch.device | torch.layout | None
    return ", ".join(repr(v) if isinstance(v, plain) else type(v).__name__ for v in values)
