"""The engine's options from those of the public interface."""

import dataclasses
from typing import Any

import torch

from recoup import _C
from recoup._memory.device_memory import parse_size
from recoup.options import Options

_LEAST_PAGE_WINDOW, _MOST_PAGE_WINDOW = 16 << 20, 4 << 30
_FIELDS = tuple(field.name for field in dataclasses.fields(Options))


def engine_options(options: Options, device: torch.device, **others: Any) -> _C.Options:
    """The options of an engine on the device. others: those that are no fields of `Options`.

    Raises ValueError or TypeError that says what is allowed.
    """
    tuning = {name: getattr(options, name) for name in _FIELDS}
    block_size, page_window = tuning.pop("block_size"), tuning.pop("page_window")
    return _C.Options(
        block_size_bytes=(
            0 if block_size is None else parse_size(block_size, device, name="block_size")
        ),
        page_window_bytes=0 if page_window is None else _page_window(page_window, device),
        **tuning,
        **others,
    )


def _page_window(window: int | str, device: torch.device) -> int:
    if device.type != "cpu":
        raise ValueError("page_window is for budgets of the CPU: leave it out for a GPU")
    size = parse_size(window, device, name="page_window")
    if not _LEAST_PAGE_WINDOW <= size <= _MOST_PAGE_WINDOW:
        raise ValueError(f"page_window must be from 16MiB to 4GiB; got {window!r}")
    return size
