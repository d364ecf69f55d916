"""A net: a model and its training data; batches and losses that most nets use."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

Batch = tuple[Any, ...]
"""Tensors, or containers of tensors."""


@dataclass(frozen=True)
class Net:
    """A model and the data that it is trained on."""

    name: str
    make: Callable[[], nn.Module]
    batch: Callable[[torch.Generator], Batch]
    loss: Callable[[nn.Module, Batch], Tensor]
    chains: tuple[str, ...]
    """Names of the model's sequences of blocks: an nn.Sequential, or an nn.ModuleList whose members
    take the previous member's result, or its first item, and the same other arguments."""
    device: torch.device = torch.device("cpu")  # noqa: RUF009
    """The device on which it is trained."""


def named(nets: Iterable[Net], name: str) -> Net:
    """The net of that name. Raises ValueError that lists the valid names."""
    known = {net.name: net for net in nets}
    if name not in known:
        raise ValueError(f"unknown net {name!r}; the nets are {', '.join(known)}")
    return known[name]


def images(count: int, side: int, classes: int = 10) -> Callable[[torch.Generator], Batch]:
    def batch(chance: torch.Generator) -> Batch:
        images = torch.randn(count, 3, side, side, generator=chance)
        return images, torch.randint(0, classes, (count,), generator=chance)

    return batch


def tokens(count: int, length: int, vocabulary: int) -> Callable[[torch.Generator], Batch]:
    """Tokens that are their own labels."""

    def batch(chance: torch.Generator) -> Batch:
        tokens = torch.randint(0, vocabulary, (count, length), generator=chance)
        return tokens, tokens

    return batch


def segmentation(count: int, side: int) -> Callable[[torch.Generator], Batch]:
    def batch(chance: torch.Generator) -> Batch:
        images = torch.randn(count, 3, side, side, generator=chance)
        return images, torch.randint(0, 2, (count, side, side), generator=chance)

    return batch


def classified(model: nn.Module, batch: Batch) -> Tensor:
    out = model(batch[0])
    return functional.cross_entropy(getattr(out, "logits", out), batch[1])


def language(model: nn.Module, batch: Batch) -> Tensor:
    """The loss of a model that computes it for next or masked tokens itself."""
    loss: Tensor = model(input_ids=batch[0], labels=batch[-1]).loss
    return loss


def from_transformers(model: str, config: str, **settings: Any) -> nn.Module:
    """A model with a config, both given by class name; no weights are loaded."""
    import transformers

    made: nn.Module = getattr(transformers, model)(getattr(transformers, config)(**settings))
    return made
