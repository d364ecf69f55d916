"""The nets that are trained, defined here so that no package must be installed."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from diffusion import DiffusionUNet
from llama import Llama
from torch import Tensor, nn

from recoup.bench.nets import vision

Loss = Callable[[nn.Module, int, torch.device], Tensor]


@dataclass(frozen=True)
class Net:
    """A model, and its loss on a new batch of random data."""

    name: str
    make: Callable[[], nn.Module]
    loss: Loss
    batch: int
    """Number of examples in a batch."""
    chains: tuple[str, ...]
    """Names of the model's sequences of blocks, around which users put checkpoints."""
    repeatable: bool = True
    """Whether all of its ops have deterministic kernels on a GPU."""


class Block(nn.Module):
    """Attention and two linear layers, each with a residual connection."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        rows, length, width = x.shape
        parts = self.qkv(self.norm1(x)).view(rows, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout, is_causal=True)
        mixed = self.out(mixed.transpose(1, 2).reshape(rows, length, width))
        x = x + F.dropout(mixed, self.dropout)
        return x + F.dropout(self.down(F.gelu(self.up(self.norm2(x)))), self.dropout)


class GPT2(nn.Module):
    """GPT-2, in the published size by default; the output layer shares the token embedding."""

    def __init__(
        self, vocabulary: int = 50_257, length: int = 1024, width: int = 768, depth: int = 12
    ) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, width // 64, 0.1) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.normal_(weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = F.dropout(self.tokens(tokens) + self.places(places), 0.1)
        for block in self.blocks:
            x = block(x)
        return self.norm(x)

    def loss(self, tokens: Tensor) -> Tensor:
        """Loss of the next token, row by row: all scores would take a third of the memory."""
        x = self(tokens)
        losses = [
            F.cross_entropy(F.linear(row[:-1], self.tokens.weight), want[1:])
            for row, want in zip(x, tokens, strict=True)
        ]
        return torch.stack(losses).mean()


def language_loss(vocabulary: int, length: int) -> Loss:
    def loss(model: nn.Module, batch: int, device: torch.device) -> Tensor:
        tokens = torch.randint(0, vocabulary, (batch, length), device=device)
        assert isinstance(model, GPT2)
        if device.type != "cuda":
            return model.loss(tokens)
        with torch.autocast("cuda", torch.bfloat16):
            return model.loss(tokens)

    return loss


def llama_loss(vocabulary: int, length: int) -> Loss:
    def loss(model: nn.Module, batch: int, device: torch.device) -> Tensor:
        assert isinstance(model, Llama)
        return model.loss(torch.randint(0, vocabulary, (batch, length), device=device))

    return loss


def noise_loss(side: int, words: int, width: int) -> Loss:
    """The loss of a diffusion model: the noise in latent images, with a text."""

    def loss(model: nn.Module, batch: int, device: torch.device) -> Tensor:
        latents = torch.randn(batch, 4, side, side, device=device)
        noise = torch.randn_like(latents)
        text = torch.randn(batch, words, width, device=device)
        times = torch.rand(batch, device=device)
        share = times.view(-1, 1, 1, 1)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            found = model((1 - share) * latents + share * noise, times, text)
        return F.mse_loss(found.float(), noise)

    return loss


def image_loss(side: int, classes: int) -> Loss:
    def loss(model: nn.Module, batch: int, device: torch.device) -> Tensor:
        images = torch.randn(batch, 3, side, side, device=device)
        labels = torch.randint(0, classes, (batch,), device=device)
        return F.cross_entropy(model(images), labels)

    return loss


def _resnet50() -> nn.Module:
    return vision.resnet((3, 4, 6, 3), 64, vision.imagenet_stem(64), classes=1000)


_NETS = {
    "gpt2": Net("gpt2", GPT2, language_loss(50_257, 512), 16, ("blocks",)),
    "resnet50": Net("resnet50", _resnet50, image_loss(224, 1000), 64, ("1",), False),
    "llama": Net("llama", Llama, llama_loss(128_256, 2048), 4, ("blocks",)),
    "diffusion": Net("diffusion", DiffusionUNet, noise_loss(64, 77, 768), 8, (), False),
}
# A quarter of their memory is more than 2 MiB, the unit of a budget on CUDA.
_TINY = {
    "gpt2": Net("gpt2", lambda: GPT2(128, 32, 64, 4), language_loss(128, 32), 16, ("blocks",)),
    "resnet50": Net(
        "resnet50", lambda: vision.resnet((1, 1), 8), image_loss(16, 10), 64, ("1",), False
    ),
    "llama": Net(
        "llama", lambda: Llama(256, 128, 4, (4, 2), 256), llama_loss(256, 64), 8, ("blocks",)
    ),
    "diffusion": Net(
        "diffusion", lambda: DiffusionUNet(32, (1, 2), 64), noise_loss(16, 8, 64), 8, (), False
    ),
}


def net_named(name: str, tiny: bool) -> Net:
    return (_TINY if tiny else _NETS)[name]
