"""The eleven networks of `recoup bench`: those of Coop's evaluation, at a size for two cores.

Depth and structure are the published ones, width and input are small. Those that `transformers` has
are built from its configs, without weights; it is part of the `bench` extra.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from recoup.bench import vision

Batch = tuple[Tensor, Tensor]

VOCABULARY = 256


@dataclass(frozen=True)
class Net:
    """A model and the data that it is trained on."""

    name: str
    make: Callable[[], nn.Module]
    batch: Callable[[torch.Generator], Batch]
    loss: Callable[[nn.Module, Batch], Tensor]
    chains: tuple[str, ...]
    """Names of the model's sequences of blocks: an nn.Sequential, or an nn.ModuleList whose members
    take what the one before returned, or its first item, and the same other arguments as it."""
    device: torch.device = torch.device("cpu")  # noqa: RUF009
    """Where it is trained."""


def images(count: int, side: int, classes: int = 10) -> Callable[[torch.Generator], Batch]:
    def batch(chance: torch.Generator) -> Batch:
        images = torch.randn(count, 3, side, side, generator=chance)
        return images, torch.randint(0, classes, (count,), generator=chance)

    return batch


def tokens(
    count: int, length: int, vocabulary: int = VOCABULARY
) -> Callable[[torch.Generator], Batch]:
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
    loss: Tensor = model(input_ids=batch[0], labels=batch[1]).loss
    return loss


class BothWays(nn.Module):
    """A bidirectional layer of LSTM."""

    def __init__(self, inputs: int, width: int, dropout: float) -> None:
        super().__init__()
        self.lstm = nn.LSTM(inputs, width, bidirectional=True, batch_first=True)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        hidden, _ = self.lstm(x)
        out: Tensor = self.dropout(hidden)
        return out


class Tagger(nn.Module):
    """A bidirectional LSTM of two layers that says something of every token."""

    def __init__(self, width: int = 64, vocabulary: int = VOCABULARY) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.layers = nn.Sequential(BothWays(width, width, 0.1), BothWays(2 * width, width, 0.0))
        self.out = nn.Linear(2 * width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        out: Tensor = self.out(self.layers(self.embed(tokens)))
        return out.transpose(1, 2)


def from_transformers(model: str, config: str, **settings: Any) -> nn.Module:
    """Of the names of its classes: imports no more than they need."""
    import transformers

    made: nn.Module = getattr(transformers, model)(getattr(transformers, config)(**settings))
    return made


def _bert() -> nn.Module:
    return from_transformers(
        "BertForMaskedLM",
        "BertConfig",
        vocab_size=VOCABULARY,
        hidden_size=96,
        num_hidden_layers=8,
        num_attention_heads=4,
        intermediate_size=384,
        max_position_embeddings=64,
    )


def _gpt2() -> nn.Module:
    return from_transformers(
        "GPT2LMHeadModel",
        "GPT2Config",
        vocab_size=VOCABULARY,
        n_positions=64,
        n_embd=96,
        n_layer=8,
        n_head=4,
        loss_type="ForCausalLM",
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
    )


def _gpt3() -> nn.Module:
    """Dense and local attention in turns, as GPT-3 has it."""
    return from_transformers(
        "GPTNeoForCausalLM",
        "GPTNeoConfig",
        vocab_size=VOCABULARY,
        max_position_embeddings=64,
        hidden_size=96,
        num_layers=8,
        attention_types=[[["global", "local"], 4]],
        num_heads=4,
        window_size=16,
        loss_type="ForCausalLM",
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
    )


def _swin() -> nn.Module:
    return from_transformers(
        "SwinForImageClassification",
        "SwinConfig",
        image_size=32,
        patch_size=2,
        embed_dim=16,
        depths=[2, 2, 6, 2],
        num_heads=[2, 4, 8, 8],
        window_size=2,
        num_labels=10,
    )


_MIDDLE = ("1",)
"""Of the networks that are a stem, blocks and a head."""
_SWIN_STAGES = tuple(f"swin.encoder.layers.{stage}.blocks" for stage in range(4))

NETS = (
    # Parameters, gradients and AdamW's state are 6 % of the peak, as those of the published net
    # with 64 images of 224 x 224.
    Net("resnet50", lambda: vision.resnet((3, 4, 6, 3)), images(28, 32), classified, _MIDDLE),
    Net(
        "resnet152",
        lambda: vision.resnet((3, 8, 36, 3), width=4),
        images(8, 32),
        classified,
        _MIDDLE,
    ),
    Net("densenet121", vision.densenet, images(4, 32), classified, _MIDDLE),
    Net("inception-v3", vision.inception, images(4, 32), classified, _MIDDLE),
    Net("unet", vision.UNet, segmentation(16, 48), classified, ("path",)),
    Net("swin", _swin, images(24, 32), classified, _SWIN_STAGES),
    Net("bilstm", Tagger, tokens(24, 48), classified, ("layers",)),
    Net("bert", _bert, tokens(16, 48), language, ("bert.encoder.layer",)),
    Net("gpt2", _gpt2, tokens(16, 48), language, ("transformer.h",)),
    Net("gpt3", _gpt3, tokens(16, 48), language, ("transformer.h",)),
    Net("spos", vision.OnePath, images(8, 24), classified, ("layers",)),
)


def net_named(name: str, device: str = "cpu") -> Net:
    """To be trained on the device. Raises ValueError that lists the names there are."""
    for net in NETS:
        if net.name == name:
            return replace(net, device=torch.device(device))
    known = ", ".join(net.name for net in NETS)
    raise ValueError(f"unknown net {name!r}; the nets are {known}")
