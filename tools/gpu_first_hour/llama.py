"""A Llama with 1.2 B parameters in bfloat16, whose steps take longer on the GPU than the host."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    """Attention with fewer keys than queries, and a gated linear unit, each with a residual."""

    def __init__(self, width: int, heads: tuple[int, int], hidden: int) -> None:
        super().__init__()
        self.queries, self.keys = heads
        self.head = width // self.queries
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        parts = (self.queries + 2 * self.keys) * self.head
        self.qkv = nn.Linear(width, parts, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate_up = nn.Linear(width, 2 * hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
        rows, length, width = x.shape
        heads = self.qkv(self.norm1(x)).view(rows, length, -1, self.head).transpose(1, 2)
        q, k, v = heads.split([self.queries, self.keys, self.keys], dim=1)
        mixed = F.scaled_dot_product_attention(
            turned(q, turns), turned(k, turns), v, is_causal=True, enable_gqa=True
        )
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, width))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


def turned(x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary position embedding: pairs of halves, turned by an angle for each position."""
    cos, sin = turns
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1)


class Llama(nn.Module):
    """A Llama, of the size of the published 3.2 1B by default; the output shares the embedding.

    heads: of queries, and of keys and values.
    """

    def __init__(
        self,
        vocabulary: int = 128_256,
        width: int = 2048,
        depth: int = 16,
        heads: tuple[int, int] = (32, 8),
        hidden: int = 8192,
    ) -> None:
        super().__init__()
        self.head = width // heads[0]
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads, hidden) for _ in range(depth))
        self.norm = nn.RMSNorm(width)
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.normal_(weight, std=0.02)
        self.to(torch.bfloat16)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens)
        turns = self._turns(tokens.shape[1], x)
        for block in self.blocks:
            x = block(x, turns)
        return self.norm(x)

    def _turns(self, length: int, like: Tensor) -> tuple[Tensor, Tensor]:
        half = torch.arange(self.head // 2, device=like.device, dtype=torch.float32)
        speeds = 500_000.0 ** (-2 * half / self.head)
        angles = torch.arange(length, device=like.device).unsqueeze(1) * speeds
        return angles.cos().to(like.dtype), angles.sin().to(like.dtype)

    def loss(self, tokens: Tensor) -> Tensor:
        """Loss of the next token, row by row: all scores would take most of the memory."""
        x = self(tokens)
        losses = [
            F.cross_entropy(F.linear(row[:-1], self.tokens.weight).float(), want[1:])
            for row, want in zip(x, tokens, strict=True)
        ]
        return torch.stack(losses).mean()
