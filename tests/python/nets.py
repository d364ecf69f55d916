"""The nets that tests and benchmarks train: small, with far more activations than parameters.

Nothing here knows recoup. A net is built and fed from seeds, so two trainings of it are the same
program.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

Batch = tuple[Any, ...]


@dataclass(frozen=True)
class Net:
    """A model with the data it is trained on."""

    name: str
    make: Callable[[], nn.Module]
    batch: Callable[[int], Batch]  # of a step; the same for the same step
    loss: Callable[[nn.Module, Batch], Tensor]
    # The submodules that `torch.utils.checkpoint` may wrap: what they take needs a gradient.
    blocks: Callable[[nn.Module], list[nn.Module]]


def wrap_in_checkpoints(net: Net, model: nn.Module, *, use_reentrant: bool) -> None:
    """Lets `torch.utils.checkpoint` recompute the net's blocks, as a user would by hand."""
    if getattr(model, "supports_gradient_checkpointing", False):  # the switch of transformers
        model.gradient_checkpointing_enable({"use_reentrant": use_reentrant})  # type: ignore[operator]
        return
    for block in net.blocks(model):
        forward = block.forward
        block.forward = lambda *args, forward=forward: checkpoint(  # type: ignore[method-assign]
            forward, *args, use_reentrant=use_reentrant
        )


def seeded(step: int) -> torch.Generator:
    return torch.Generator().manual_seed(1000 + step)


def images_and_labels(step: int, count: int, channels: int, side: int) -> Batch:
    generator = seeded(step)
    images = torch.randn(count, channels, side, side, generator=generator)
    return images, torch.randint(0, 10, (count,), generator=generator)


def classification_loss(model: nn.Module, batch: Batch) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


# ---- char GPT ----
class GPTBlock(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def attend(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(1, 2)
            for part in self.qkv(x).split(width, dim=2)
        )
        scores = (q @ k.transpose(-2, -1)) / (width // self.heads) ** 0.5
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        weights = self.dropout(scores.masked_fill(future, float("-inf")).softmax(-1))
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attend(self.norm1(x)))
        return x + self.dropout(self.down(F.gelu(self.up(self.norm2(x)))))


class CharGPT(nn.Module):
    def __init__(self, vocabulary: int, length: int, width: int, heads: int, depth: int) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(length, width)
        self.dropout = nn.Dropout(0.1)
        self.blocks = nn.Sequential(*[GPTBlock(width, heads, 0.1) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.dropout(self.token(tokens) + self.position(positions))
        return self.head(self.norm(self.blocks(x)))


def token_batch(step: int, count: int, length: int, vocabulary: int) -> Batch:
    return (torch.randint(0, vocabulary, (count, length), generator=seeded(step)),)


def next_token_loss(model: nn.Module, batch: Batch) -> Tensor:
    tokens = batch[0]
    logits = model(tokens[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


# ---- ResNet with BatchNorm and in-place ReLU ----
class ResidualBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.norm1(self.conv1(x)))
        out = self.norm2(self.conv2(out))
        out += self.shortcut(x)
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self, widths: tuple[int, ...], blocks: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, widths[0], 3, padding=1, bias=False),
            nn.BatchNorm2d(widths[0]),
            nn.ReLU(inplace=True),
        )
        layers: list[nn.Module] = []
        inputs = widths[0]
        for stage, width in enumerate(widths):
            for index in range(blocks):
                layers.append(ResidualBlock(inputs, width, 2 if stage and not index else 1))
                inputs = width
        self.blocks = nn.Sequential(*layers)
        self.head = nn.Linear(inputs, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


# ---- U-Net ----
def double_conv(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, widths: tuple[int, ...] = (12, 24, 48)) -> None:
        super().__init__()
        inputs = (3, *widths[:-1])
        self.down = nn.ModuleList([double_conv(i, o) for i, o in zip(inputs, widths, strict=True)])
        pairs = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.widen = nn.ModuleList([nn.ConvTranspose2d(i, o, 2, stride=2) for i, o in pairs])
        self.up = nn.ModuleList([double_conv(2 * o, o) for _, o in pairs])
        self.head = nn.Conv2d(widths[0], 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips: list[Tensor] = []
        for level, block in enumerate(self.down):
            x = block(F.max_pool2d(x, 2) if level else x)
            skips.append(x)
        skips.pop()
        for widen, block in zip(self.widen, self.up, strict=True):
            x = block(torch.cat([skips.pop(), widen(x)], dim=1))
        return self.head(x)


def segmentation_batch(step: int) -> Batch:
    images = torch.randn(8, 3, 32, 32, generator=seeded(step))
    return images, (images.mean(1) > 0).long()


# ---- LSTMs ----
class BiLSTM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Embedding(64, 48)
        self.lstm = nn.LSTM(48, 48, 2, batch_first=True, dropout=0.2, bidirectional=True)
        self.tag = nn.Sequential(nn.Linear(96, 96), nn.Tanh(), nn.Linear(96, 10))

    def forward(self, tokens: Tensor) -> Tensor:
        hidden, _ = self.lstm(self.token(tokens))
        return self.tag(hidden)


def tagging_loss(model: nn.Module, batch: Batch) -> Tensor:
    return F.cross_entropy(model(batch[0]).flatten(0, 1), (batch[0] % 10).flatten())


Tree = tuple[Any, Any] | int  # a pair of trees, or the index of a leaf's vector


def random_tree(leaves: list[int], chance: random.Random) -> Tree:
    if len(leaves) == 1:
        return leaves[0]
    cut = chance.randrange(1, len(leaves))
    return random_tree(leaves[:cut], chance), random_tree(leaves[cut:], chance)


class TreeLSTM(nn.Module):
    """A binary tree-structured LSTM (Tai et al. 2015): the tree's shape is part of the input."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.leaf = nn.Linear(width, 2 * width)
        self.gates = nn.Linear(2 * width, 5 * width)
        self.head = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, 10))

    def encode(self, tree: Tree, vectors: Tensor) -> tuple[Tensor, Tensor]:
        if isinstance(tree, int):
            out, cell = self.leaf(vectors[tree]).chunk(2, dim=-1)
            return torch.sigmoid(out) * torch.tanh(cell), cell
        (left_h, left_c), (right_h, right_c) = (self.encode(child, vectors) for child in tree)
        gates = self.gates(torch.cat([left_h, right_h], dim=-1)).chunk(5, dim=-1)
        forget_left, forget_right, write, out = (torch.sigmoid(gate) for gate in gates[:4])
        cell = forget_left * left_c + forget_right * right_c + write * torch.tanh(gates[4])
        return out * torch.tanh(cell), cell

    def forward(self, tree: Tree, vectors: Tensor) -> Tensor:
        return self.head(self.encode(tree, vectors)[0])


def tree_batch(step: int) -> Batch:
    chance = random.Random(step)
    leaves = chance.randrange(12, 21)
    tree = random_tree(list(range(leaves)), chance)
    generator = seeded(step)
    vectors = torch.randn(leaves, 96, 64, generator=generator)
    return tree, vectors, torch.randint(0, 10, (96,), generator=generator)


def tree_loss(model: nn.Module, batch: Batch) -> Tensor:
    tree, vectors, labels = batch
    return F.cross_entropy(model(tree, vectors), labels)


# ---- built by transformers, from configs: no weights are loaded ----
def from_config(model: str, config: str, **settings: Any) -> nn.Module:
    import transformers

    return getattr(transformers, model)(getattr(transformers, config)(**settings))


def make_bert() -> nn.Module:
    return from_config(
        "BertForMaskedLM",
        "BertConfig",
        vocab_size=128,
        hidden_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=256,
        max_position_embeddings=64,
    )


def make_gpt2() -> nn.Module:
    # Without dropout in the attention PyTorch takes its fused kernel.
    return from_config(
        "GPT2LMHeadModel",
        "GPT2Config",
        vocab_size=128,
        n_positions=64,
        n_embd=64,
        n_layer=3,
        n_head=4,
        attn_pdrop=0.0,
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
    )


def make_vit() -> nn.Module:
    return from_config(
        "ViTForImageClassification",
        "ViTConfig",
        image_size=32,
        patch_size=4,
        hidden_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=256,
        hidden_dropout_prob=0.1,
        num_labels=10,
    )


def make_resnet50() -> nn.Module:
    return from_config(
        "ResNetForImageClassification",
        "ResNetConfig",
        embedding_size=16,
        hidden_sizes=[32, 64, 96, 128],
        depths=[2, 2, 2, 2],
        layer_type="bottleneck",
        num_labels=10,
    )


def language_model_loss(model: nn.Module, batch: Batch) -> Tensor:
    return model(input_ids=batch[0], labels=batch[0]).loss


def image_model_loss(model: nn.Module, batch: Batch) -> Tensor:
    return F.cross_entropy(model(pixel_values=batch[0]).logits, batch[1])


def children_of(name: str) -> Callable[[nn.Module], list[nn.Module]]:
    return lambda model: list(model.get_submodule(name).children())


NETS: tuple[Net, ...] = (
    Net(
        "char_gpt",
        lambda: CharGPT(vocabulary=96, length=64, width=64, heads=4, depth=3),
        lambda step: token_batch(step, 12, 65, 96),
        next_token_loss,
        children_of("blocks"),
    ),
    Net(
        "resnet",
        lambda: ResNet(widths=(16, 32), blocks=2),
        lambda step: images_and_labels(step, 48, 3, 16),
        classification_loss,
        children_of("blocks"),
    ),
    Net(
        "unet",
        UNet,
        segmentation_batch,
        classification_loss,
        lambda model: list(model.get_submodule("up").children()),
    ),
    Net(
        "bilstm",
        BiLSTM,
        lambda step: token_batch(step, 16, 48, 64),
        tagging_loss,
        lambda model: [model.get_submodule("tag")],
    ),
    Net(
        "tree_lstm",
        TreeLSTM,
        tree_batch,
        tree_loss,
        lambda model: [model.get_submodule("gates")],
    ),
    Net(
        "bert",
        make_bert,
        lambda step: token_batch(step, 8, 64, 128),
        language_model_loss,
        lambda model: [],
    ),
    Net(
        "gpt2",
        make_gpt2,
        lambda step: token_batch(step, 8, 64, 128),
        language_model_loss,
        lambda model: [],
    ),
    Net(
        "vit",
        make_vit,
        lambda step: images_and_labels(step, 8, 3, 32),
        image_model_loss,
        lambda model: [],
    ),
    Net(
        "resnet50",
        make_resnet50,
        lambda step: images_and_labels(step, 16, 3, 64),
        image_model_loss,
        children_of("resnet.encoder.stages"),
    ),
)


def net_named(name: str) -> Net:
    for net in NETS:
        if net.name == name:
            return net
    raise ValueError(f"no net {name!r}; there are {', '.join(net.name for net in NETS)}")
