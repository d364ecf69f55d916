"""A digest of all values that a test compares; runs with equal bits have equal digests."""

import hashlib
from typing import Any

import torch

# Larger tensors take too long to hash; these are enough to detect wrong bits.
MOST_ELEMENTS = 1 << 16
# Integers from this size on are taken for addresses and sizes, which differ between runs.
FIRST_ADDRESS = 1 << 32
MOST_TENSORS = 8


class Digest:
    def __init__(self) -> None:
        self._parts: list[str] = []
        self._busy = False

    def clear(self) -> None:
        self._parts.clear()

    def count(self) -> int:
        return len(self._parts)

    def text(self) -> str:
        return hashlib.md5("|".join(self._parts).encode()).hexdigest()

    def add(self, *values: Any) -> None:
        """Adds plain values; does nothing while a mode or a transform could intercept the copy."""
        if self._busy or _watched():
            return
        self._busy = True
        try:
            for value in values:
                self._add(value)
        finally:
            self._busy = False

    def _add(self, value: Any) -> None:
        if isinstance(value, list | tuple):
            for one in value[:MOST_TENSORS]:
                if isinstance(one, torch.Tensor):
                    self._add(one)
        elif isinstance(value, torch.Tensor):
            if _plain(value):
                self._parts.append(_digest_of(value))
        elif isinstance(value, bool | float | complex):
            self._parts.append(repr(value))
        elif isinstance(value, int) and abs(value) < FIRST_ADDRESS:
            self._parts.append(repr(value))


def _watched() -> bool:
    return bool(
        torch._C._len_torch_dispatch_stack()
        or torch._C._len_torch_function_stack()
        or torch._C._functorch.peek_interpreter_stack() is not None
    )


def _plain(tensor: torch.Tensor) -> bool:
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
        and tensor.layout == torch.strided
        and tensor.device.type == "cpu"
        and not tensor.is_quantized
        and not tensor.is_nested
        and 0 < tensor.numel() <= MOST_ELEMENTS
    )


def _digest_of(tensor: torch.Tensor) -> str:
    with torch.no_grad():
        copy = torch.empty(tensor.shape, dtype=tensor.dtype)
        copy.copy_(tensor.detach())
        data = copy.reshape(-1).view(torch.uint8).numpy().tobytes()
    return hashlib.md5(data).hexdigest()
