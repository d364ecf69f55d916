"""The nets that tests train: small, with much more memory in activations than in parameters.

Tests assert the budgets in which these nets train, so a change to a net needs new budgets there.
"""

import random
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from recoup.bench.nets.char_gpt import CharGPT
from recoup.bench.nets.net import (
    Batch,
    Net,
    classified,
    from_transformers,
    images,
    language,
    named,
)
from recoup.bench.nets.recurrent import BiLSTM, TreeLSTM, random_tree
from recoup.bench.nets.tiny_vision import ResNet, UNet
from recoup.bench.nets.transformer_nets import bert, gpt2

_FIRST_SEED = 1000


def seeded(step: int) -> torch.Generator:
    """The random generator of a net's batch at that step."""
    return torch.Generator().manual_seed(_FIRST_SEED + step)


def _tokens(count: int, length: int, vocabulary: int) -> Callable[[torch.Generator], Batch]:
    return lambda chance: (torch.randint(0, vocabulary, (count, length), generator=chance),)


def _next_token(model: nn.Module, batch: Batch) -> Tensor:
    tokens = batch[0]
    logits = model(tokens[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def _segmentation(chance: torch.Generator) -> Batch:
    images = torch.randn(8, 3, 32, 32, generator=chance)
    return images, (images.mean(1) > 0).long()


def _tagged(model: nn.Module, batch: Batch) -> Tensor:
    return functional.cross_entropy(model(batch[0]).flatten(0, 1), (batch[0] % 10).flatten())


def _tree(chance: torch.Generator) -> Batch:
    """A tree whose shape differs at each step and is derived from the seed."""
    shapes = random.Random(chance.initial_seed() - _FIRST_SEED)
    leaves = shapes.randrange(12, 21)
    tree = random_tree(list(range(leaves)), shapes)
    vectors = torch.randn(leaves, 96, 64, generator=chance)
    return tree, vectors, torch.randint(0, 10, (96,), generator=chance)


def _tree_classified(model: nn.Module, batch: Batch) -> Tensor:
    tree, vectors, labels = batch
    return functional.cross_entropy(model(tree, vectors), labels)


def _bert() -> nn.Module:
    return bert(128, width=64, depth=3)


def _gpt2() -> nn.Module:
    # Without dropout in the attention PyTorch uses its fused kernel.
    return gpt2(128, width=64, depth=3, attn_pdrop=0.0)


def _vit() -> nn.Module:
    return from_transformers(
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


def _resnet50() -> nn.Module:
    return from_transformers(
        "ResNetForImageClassification",
        "ResNetConfig",
        embedding_size=16,
        hidden_sizes=[32, 64, 96, 128],
        depths=[2, 2, 2, 2],
        layer_type="bottleneck",
        num_labels=10,
    )


NETS = (
    Net(
        "char_gpt",
        lambda: CharGPT(vocabulary=96, length=64, width=64, heads=4, depth=3),
        _tokens(12, 65, 96),
        _next_token,
        ("blocks",),
    ),
    Net(
        "resnet",
        lambda: ResNet(widths=(16, 32), blocks=2),
        images(48, 16),
        classified,
        ("blocks",),
    ),
    Net("unet", UNet, _segmentation, classified, ("up",)),
    Net("bilstm", BiLSTM, _tokens(16, 48, 64), _tagged, ()),
    Net("tree_lstm", TreeLSTM, _tree, _tree_classified, ()),
    Net("bert", _bert, _tokens(8, 64, 128), language, ("bert.encoder.layer",)),
    Net("gpt2", _gpt2, _tokens(8, 64, 128), language, ("transformer.h",)),
    Net("vit", _vit, images(8, 32), classified, ("vit.encoder.layer",)),
    Net("resnet50", _resnet50, images(16, 64), classified, ("resnet.encoder.stages",)),
)


def net_named(name: str) -> Net:
    """The net of that name. Raises ValueError that lists the valid names."""
    return named(NETS, name)
