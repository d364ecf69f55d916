"""Vision networks with the depth of the published ones; narrow by default."""

import random

import torch
from torch import Tensor, nn
from torch.nn import functional


def conv(
    inputs: int,
    outputs: int,
    kernel: int | tuple[int, int] = 1,
    stride: int = 1,
    padding: int | tuple[int, int] = 0,
) -> nn.Sequential:
    """Convolution, batch normalization, activation."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1, and the sum with the input."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.body = nn.Sequential(
            conv(inputs, width),
            conv(width, width, 3, stride, 1),
            nn.Conv2d(width, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.body(x) + self.shortcut(x), inplace=True)


def imagenet_stem(width: int) -> nn.Module:
    """The stem of a ResNet for large images; reduces the side to a quarter."""
    return nn.Sequential(conv(3, width, 7, 2, 3), nn.MaxPool2d(3, 2, 1))


def resnet(
    blocks: tuple[int, ...], width: int = 8, stem: nn.Module | None = None, classes: int = 10
) -> nn.Module:
    """A ResNet. ResNet-50 has blocks (3, 4, 6, 3), ResNet-152 (3, 8, 36, 3), both width 64."""
    stem = stem or conv(3, width, 3, 1, 1)
    layers: list[nn.Module] = []
    channels = width
    for stage, count in enumerate(blocks):
        for block in range(count):
            stride = 2 if stage > 0 and block == 0 else 1
            layers.append(Bottleneck(channels, width << stage, stride))
            channels = 4 * width << stage
    return nn.Sequential(stem, nn.Sequential(*layers), *head(channels, classes))


def head(channels: int, classes: int = 10) -> tuple[nn.Module, ...]:
    """Mean over the image, then scores of the classes."""
    return nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)


class DenseLayer(nn.Module):
    """Appends `growth` channels to the input."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(inputs),
            nn.ReLU(),
            nn.Conv2d(inputs, 4 * growth, 1, bias=False),
            nn.BatchNorm2d(4 * growth),
            nn.ReLU(),
            nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.body(x)], 1)


def densenet(blocks: tuple[int, ...] = (6, 12, 24, 16), growth: int = 4) -> nn.Module:
    """A DenseNet. DenseNet-121 has these blocks and a growth of 32."""
    channels = 2 * growth
    stem = conv(3, channels, 3, 1, 1)
    layers: list[nn.Module] = []
    for index, count in enumerate(blocks):
        for _ in range(count):
            layers.append(DenseLayer(channels, growth))
            channels += growth
        if index + 1 < len(blocks):
            transition = nn.Sequential(
                nn.BatchNorm2d(channels),
                nn.ReLU(),
                nn.Conv2d(channels, channels // 2, 1, bias=False),
                nn.AvgPool2d(2),
            )
            layers.append(transition)
            channels //= 2
    return nn.Sequential(
        stem, nn.Sequential(*layers), nn.BatchNorm2d(channels), nn.ReLU(), *head(channels)
    )


class Branches(nn.Module):
    """Parallel branches whose channels are concatenated."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


def pooled(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.AvgPool2d(3, 1, 1), conv(inputs, outputs))


def mixed_a(inputs: int, w: int) -> nn.Module:
    """The 35 x 35 module; 7 w channels."""
    return Branches(
        conv(inputs, 2 * w),
        nn.Sequential(conv(inputs, w), conv(w, 2 * w, 5, 1, 2)),
        nn.Sequential(
            conv(inputs, 2 * w), conv(2 * w, 2 * w, 3, 1, 1), conv(2 * w, 2 * w, 3, 1, 1)
        ),
        pooled(inputs, w),
    )


def mixed_b(inputs: int, w: int) -> nn.Module:
    """The 17 x 17 module, with 7 x 7 convolutions in two parts; 8 w channels."""
    row, column = {"kernel": (1, 7), "padding": (0, 3)}, {"kernel": (7, 1), "padding": (3, 0)}
    return Branches(
        conv(inputs, 2 * w),
        nn.Sequential(conv(inputs, w), conv(w, w, **row), conv(w, 2 * w, **column)),  # type: ignore[arg-type]
        nn.Sequential(
            conv(inputs, w),
            conv(w, w, **column),  # type: ignore[arg-type]
            conv(w, w, **row),  # type: ignore[arg-type]
            conv(w, w, **column),  # type: ignore[arg-type]
            conv(w, 2 * w, **row),  # type: ignore[arg-type]
        ),
        pooled(inputs, 2 * w),
    )


def mixed_c(inputs: int, w: int) -> nn.Module:
    """The 8 x 8 module, whose branches branch again; 12 w channels."""

    def split(channels: int) -> nn.Module:
        return Branches(
            conv(channels, 2 * w, (1, 3), 1, (0, 1)), conv(channels, 2 * w, (3, 1), 1, (1, 0))
        )

    return Branches(
        conv(inputs, 2 * w),
        nn.Sequential(conv(inputs, 2 * w), split(2 * w)),
        nn.Sequential(conv(inputs, 2 * w), conv(2 * w, 2 * w, 3, 1, 1), split(2 * w)),
        pooled(inputs, 2 * w),
    )


def inception(w: int = 8) -> nn.Module:
    """Inception V3's modules: three, four and two of its kinds, with grid reductions between."""
    reduce_a = Branches(
        conv(7 * w, 2 * w, 3, 2, 1),
        nn.Sequential(conv(7 * w, w), conv(w, w, 3, 1, 1), conv(w, w, 3, 2, 1)),
        nn.MaxPool2d(3, 2, 1),
    )
    reduce_b = Branches(
        nn.Sequential(conv(8 * w, w), conv(w, 2 * w, 3, 2, 1)), nn.MaxPool2d(3, 2, 1)
    )
    stem = conv(3, w, 3, 1, 1)
    blocks = nn.Sequential(
        conv(w, 2 * w, 3, 1, 1),
        mixed_a(2 * w, w),
        mixed_a(7 * w, w),
        mixed_a(7 * w, w),
        reduce_a,
        mixed_b(10 * w, w),
        *(mixed_b(8 * w, w) for _ in range(3)),
        reduce_b,
        mixed_c(10 * w, w),
        mixed_c(12 * w, w),
    )
    return nn.Sequential(stem, blocks, nn.Dropout(0.5), *head(12 * w))


Skips = tuple[Tensor, ...]
"""The current tensor of a U-Net, then the outputs of earlier levels for the way up."""


class Down(nn.Module):
    """A level on the way down: keeps its result for the way up, and passes on half the size."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, state: Skips) -> Skips:
        x, *waiting = state
        x = self.body(x)
        return functional.max_pool2d(x, 2), *waiting, x


class Bottom(nn.Module):
    """The lowest level."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, state: Skips) -> Skips:
        x, *waiting = state
        return self.body(x), *waiting


class Up(nn.Module):
    """A level on the way up: doubles the size, and joins the result of the same level."""

    def __init__(self, up: nn.Module, join: nn.Module) -> None:
        super().__init__()
        self.up = up
        self.join = join

    def forward(self, state: Skips) -> Skips:
        x, *waiting, skip = state
        return self.join(torch.cat([skip, self.up(x)], 1)), *waiting


class UNet(nn.Module):
    """A U-Net: levels down and up again, with skip connections between them."""

    def __init__(self, width: int = 8, depth: int = 4, classes: int = 2) -> None:
        super().__init__()

        def double(inputs: int, outputs: int) -> nn.Sequential:
            return nn.Sequential(conv(inputs, outputs, 3, 1, 1), conv(outputs, outputs, 3, 1, 1))

        widths = [width << level for level in range(depth + 1)]
        down = [
            Down(double(inputs, outputs))
            for inputs, outputs in zip([3, *widths[:-2]], widths[:-1], strict=True)
        ]
        bottom = Bottom(double(widths[-2], widths[-1]))
        wider = [nn.ConvTranspose2d(2 * narrow, narrow, 2, 2) for narrow in reversed(widths[:-1])]
        join = [double(2 * narrow, narrow) for narrow in reversed(widths[:-1])]
        self.path = nn.Sequential(*down, bottom, *map(Up, wider, join))
        self.out = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        (x,) = self.path((x,))
        out: Tensor = self.out(x)
        return out


class Choice(nn.Module):
    """A layer of OnePath: adds the result of one of its four choices to the input."""

    def __init__(self, width: int, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.choices = nn.ModuleList(
            nn.Sequential(
                conv(width, width),
                nn.Conv2d(width, width, kernel, padding=kernel // 2, groups=width, bias=False),
                nn.BatchNorm2d(width),
                conv(width, width),
            )
            for kernel in (3, 5, 7, 9)
        )

    def forward(self, x: Tensor, path: list[int]) -> Tensor:
        out: Tensor = x + self.choices[path[self.layer]](x)
        return out


class OnePath(nn.Module):
    """A supernet of which each step trains one path, a choice of four for each layer (SPOS)."""

    def __init__(self, width: int = 24, layers: int = 12) -> None:
        super().__init__()
        self.stem = conv(3, width, 3, 1, 1)
        self.layers = nn.ModuleList(Choice(width, layer) for layer in range(layers))
        self.head = nn.Sequential(*head(width))
        self.depth = layers
        self.chance = random.Random(0)

    def forward(self, x: Tensor) -> Tensor:
        path = [self.chance.randrange(4) for _ in range(self.depth)]
        x = self.stem(x)
        for layer in self.layers:
            x = layer(x, path)
        out: Tensor = self.head(x)
        return out
