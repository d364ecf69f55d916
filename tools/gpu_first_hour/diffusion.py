"""The U-Net of a latent diffusion model, of the size of Stable Diffusion's by default."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

GROUPS = 32


class Residual(nn.Module):
    """Two convolutions, between which the embedding of the time is added."""

    def __init__(self, inputs: int, outputs: int, time: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(GROUPS, inputs), nn.GroupNorm(GROUPS, outputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.time = nn.Linear(time, outputs)
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        y = self.conv1(F.silu(self.norm1(x)))
        y = y + self.time(F.silu(time))[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(y)))


class Attention(nn.Module):
    """Attention of positions to each other, or to a text."""

    def __init__(self, width: int, source: int) -> None:
        super().__init__()
        self.heads = max(1, width // 64)
        self.norm = nn.LayerNorm(width)
        self.q = nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(source, 2 * width, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, text: Tensor | None = None) -> Tensor:
        y = self.norm(x)
        k, v = self.kv(y if text is None else text).chunk(2, dim=-1)
        parts = (z.unflatten(-1, (self.heads, -1)).transpose(1, 2) for z in (self.q(y), k, v))
        mixed = F.scaled_dot_product_attention(*parts)
        return x + self.out(mixed.transpose(1, 2).flatten(2))


class Transformer(nn.Module):
    """Attention within an image, to the text, and a gated linear unit."""

    def __init__(self, width: int, text: int) -> None:
        super().__init__()
        self.within, self.to_text = Attention(width, width), Attention(width, text)
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, text: Tensor) -> Tensor:
        y = self.to_text(self.within(x.flatten(2).transpose(1, 2)), text)
        inner, gate = self.up(self.norm(y)).chunk(2, dim=-1)
        y = y + self.down(inner * F.gelu(gate))
        return y.transpose(1, 2).reshape(x.shape)


class Level(nn.Module):
    """Residual blocks of one resolution, each with a transformer if the level has attention."""

    def __init__(self, sizes: list[tuple[int, int]], time: int, text: int, attends: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Residual(*size, time) for size in sizes)
        self.attention = nn.ModuleList(
            Transformer(outputs, text) for _, outputs in sizes if attends
        )

    def step(self, at: int, x: Tensor, time: Tensor, text: Tensor) -> Tensor:
        """Applies the block with this number."""
        x = self.blocks[at](x, time)
        return self.attention[at](x, text) if len(self.attention) > 0 else x


class DiffusionUNet(nn.Module):
    """Down, through the bottom, and up again, with a skip from each block.

    width: channels of the first level. factors: channels of each level over that.
    text: width of the text's embedding.
    """

    def __init__(
        self, width: int = 320, factors: tuple[int, ...] = (1, 2, 4, 4), text: int = 768
    ) -> None:
        super().__init__()
        time = 4 * width
        sizes = [width * factor for factor in factors]
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, time), nn.SiLU(), nn.Linear(time, time))
        self.first = nn.Conv2d(4, width, 3, padding=1)
        self.down, self.shrink = nn.ModuleList(), nn.ModuleList()
        skips, now = [width], width
        for at, size in enumerate(sizes):
            is_last = at + 1 == len(sizes)
            self.down.append(Level([(now, size), (size, size)], time, text, not is_last))
            skips += [size, size]
            if not is_last:
                self.shrink.append(nn.Conv2d(size, size, 3, stride=2, padding=1))
                skips.append(size)
            now = size
        self.bottom = Level([(now, now), (now, now)], time, text, True)
        self.up, self.grow = nn.ModuleList(), nn.ModuleList()
        for at, size in reversed(list(enumerate(sizes))):
            is_last = at + 1 == len(sizes)
            joined = [((now if i == 0 else size) + skips.pop(), size) for i in range(3)]
            self.up.append(Level(joined, time, text, not is_last))
            if at > 0:
                self.grow.append(nn.Conv2d(size, size, 3, padding=1))
            now = size
        self.norm, self.last = nn.GroupNorm(GROUPS, width), nn.Conv2d(width, 4, 3, padding=1)

    def forward(self, x: Tensor, times: Tensor, text: Tensor) -> Tensor:
        time = self.time(waves(times, self.width))
        x = self.first(x)
        skips = [x]
        for at, level in enumerate(self.down):
            for block in range(2):
                x = level.step(block, x, time, text)
                skips.append(x)
            if at < len(self.shrink):
                x = self.shrink[at](x)
                skips.append(x)
        for block in range(2):
            x = self.bottom.step(block, x, time, text)
        for at, level in enumerate(self.up):
            for block in range(3):
                x = level.step(block, torch.cat((x, skips.pop()), dim=1), time, text)
            if at < len(self.grow):
                x = self.grow[at](F.interpolate(x, scale_factor=2.0, mode="nearest"))
        return self.last(F.silu(self.norm(x)))


def waves(times: Tensor, width: int) -> Tensor:
    """The embedding of a time: sines and cosines of frequencies that fall to 1/10,000."""
    places = torch.arange(width // 2, device=times.device) / (width // 2)
    angles = 1000 * times[:, None] * 10_000.0**-places
    return torch.cat((angles.cos(), angles.sin()), dim=-1)
