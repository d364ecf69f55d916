"""Six published networks at their original size, and their training data.

Ops take milliseconds and tensors megabytes, as in trainings that are short of memory. Weights are
random: `transformers` builds its nets from their default configs.
"""

from dataclasses import dataclass, replace

from torch import nn

from recoup.bench.nets import tiny, vision
from recoup.bench.nets.net import (
    Net,
    classified,
    from_transformers,
    images,
    language,
    segmentation,
    tokens,
)
from recoup.bench.nets.recurrent import Tagger

_WHOLE_CURVE = (1.0, 0.8, 0.7, 0.6, 0.5, 0.45, 0.4, 0.35, 0.3)
_THREE = (1.0, 0.6, 0.4)


@dataclass(frozen=True)
class RealNet:
    """A net, and the budgets in which it is trained."""

    net: Net
    what: str
    """The net and its batch, in words."""
    fractions: tuple[float, ...] = _THREE
    """Default budgets, as fractions of the peak."""


def _gpt2() -> nn.Module:
    return from_transformers(
        "GPT2LMHeadModel", "GPT2Config", loss_type="ForCausalLM", use_cache=False
    )


def _bert() -> nn.Module:
    return from_transformers("BertForMaskedLM", "BertConfig")


def _vit() -> nn.Module:
    return from_transformers("ViTForImageClassification", "ViTConfig", num_labels=1000)


def _resnet50() -> nn.Module:
    return vision.resnet((3, 4, 6, 3), 64, vision.imagenet_stem(64), classes=1000)


REAL_NETS = (
    RealNet(
        Net("gpt2", _gpt2, tokens(4, 512, 50_257), language, ("transformer.h",)),
        "GPT-2 of 124 M parameters, 4 x 512 tokens",
        _WHOLE_CURVE,
    ),
    RealNet(
        Net("resnet50", _resnet50, images(16, 224, 1000), classified, ("1",)),
        "ResNet-50, 16 images of 224 x 224",
        _WHOLE_CURVE,
    ),
    RealNet(
        Net("bert", _bert, tokens(8, 256, 30_522), language, ("bert.encoder.layer",)),
        "BERT base, 8 x 256 tokens",
    ),
    RealNet(
        Net("vit", _vit, images(16, 224, 1000), classified, ("vit.encoder.layer",)),
        "ViT-B/16, 16 images of 224 x 224",
    ),
    RealNet(
        Net("unet", lambda: vision.UNet(32), segmentation(8, 256), classified, ("path",)),
        "U-Net of width 32, 8 images of 256 x 256",
    ),
    RealNet(
        Net(
            "bilstm", lambda: Tagger(512, 10_000), tokens(16, 256, 10_000), classified, ("layers",)
        ),
        "bidirectional LSTM, two layers of 512, 16 x 256 tokens",
    ),
)

_TINY = RealNet(
    replace(tiny.net_named("resnet"), name="tiny"),
    "ResNet of four blocks, 48 images of 16 x 16",
)
"""Shows in seconds that everything works; `all` excludes it, because it measures nothing."""

_BY_NAME = {real.net.name: real for real in (*REAL_NETS, _TINY)}


def real_net_names() -> list[str]:
    """Names of all nets, the tiny one included."""
    return list(_BY_NAME)


def real_net_named(name: str) -> RealNet:
    """The net of that name. Raises ValueError that lists the valid names."""
    if name not in _BY_NAME:
        raise ValueError(f"unknown net {name!r}; the nets are {', '.join(_BY_NAME)}")
    return _BY_NAME[name]
