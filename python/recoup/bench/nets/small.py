"""The eleven networks of `recoup bench`: those of Coop's evaluation, scaled to two cores.

Depth and structure are the published ones, width and input are small. Networks of `transformers`,
which is part of the `bench` extra, are built from its configs, without weights.
"""

from dataclasses import replace

import torch
from torch import nn

from recoup.bench.nets import vision
from recoup.bench.nets.net import (
    Net,
    classified,
    from_transformers,
    images,
    language,
    named,
    segmentation,
    tokens,
)
from recoup.bench.nets.recurrent import Tagger
from recoup.bench.nets.transformer_nets import bert, gpt2

VOCABULARY = 256


def _bert() -> nn.Module:
    return bert(VOCABULARY, width=96, depth=8)


def _gpt2() -> nn.Module:
    return gpt2(VOCABULARY, width=96, depth=8, loss_type="ForCausalLM")


def _gpt3() -> nn.Module:
    """Alternates dense and local attention, as GPT-3 does."""
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
"""The chain of networks that consist of a stem, blocks and a head."""
_SWIN_STAGES = tuple(f"swin.encoder.layers.{stage}.blocks" for stage in range(4))

NETS = (
    # Parameters, gradients and AdamW's state are 6 % of the peak, as for the published net with 64
    # images of 224 x 224.
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
    Net(
        "bilstm",
        lambda: Tagger(64, VOCABULARY),
        tokens(24, 48, VOCABULARY),
        classified,
        ("layers",),
    ),
    Net("bert", _bert, tokens(16, 48, VOCABULARY), language, ("bert.encoder.layer",)),
    Net("gpt2", _gpt2, tokens(16, 48, VOCABULARY), language, ("transformer.h",)),
    Net("gpt3", _gpt3, tokens(16, 48, VOCABULARY), language, ("transformer.h",)),
    Net("spos", vision.OnePath, images(8, 24), classified, ("layers",)),
)


def net_named(name: str, device: str = "cpu") -> Net:
    """The net, trained on the device. Raises ValueError that lists the valid names."""
    return replace(named(NETS, name), device=torch.device(device))
