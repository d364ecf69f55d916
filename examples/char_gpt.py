"""Trains a character-level GPT on the source text of Python's own standard library.

    python examples/char_gpt.py --steps 50
    python examples/char_gpt.py --steps 50 --budget 100MB --compare

The model, the data and the training loop are plain PyTorch without any reference to a budget. All
that recoup needs is in `main_of` of trained.py: an import, a `with` line and, optionally, a report.
The model is written out here instead of imported from recoup.bench.nets, so that the example is
complete.
"""

import sysconfig
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from trained import Trained, main_of

TEXT = 500_000  # characters to learn from
LENGTH = 128  # characters that the model sees at once
BATCH = 24
WIDTH = 96
HEADS = 4
DEPTH = 6


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )
        self.dropout = nn.Dropout(0.1)

    def attend(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, HEADS, width // HEADS).transpose(1, 2)
            for part in self.qkv(x).split(width, dim=2)
        )
        scores = (q @ k.transpose(-2, -1)) / (width // HEADS) ** 0.5
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        weights = self.dropout(scores.masked_fill(future, float("-inf")).softmax(-1))
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attend(self.norm1(x)))
        return x + self.dropout(self.mlp(self.norm2(x)))


class CharGPT(nn.Module):
    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, WIDTH)
        self.position = nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(DEPTH)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, vocabulary)

    def forward(self, characters: Tensor) -> Tensor:
        x = self.token(characters) + self.position(torch.arange(characters.shape[1]))
        return self.head(self.norm(self.blocks(x)))


def read_text() -> str:
    """Part of the sources of Python's standard library."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    text = ""
    for path in sorted(folder.glob("*.py")):
        text += path.read_text(encoding="utf-8", errors="ignore")
        if len(text) >= TEXT:
            break
    return text[:TEXT]


def train(steps: int, seed: int, quiet: bool = False) -> Trained:
    """An ordinary training loop."""
    torch.manual_seed(seed)
    text = read_text()
    alphabet = sorted(set(text))
    code_of = {character: code for code, character in enumerate(alphabet)}
    data = torch.tensor([code_of[character] for character in text])

    model = CharGPT(len(alphabet))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    trained = Trained(model, optimizer)
    for step in range(steps):
        start = time.perf_counter()
        at = torch.randint(len(data) - LENGTH - 1, (BATCH, 1)) + torch.arange(LENGTH + 1)
        batch = data[at]
        logits = model(batch[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        trained.losses.append(loss.item())
        trained.seconds.append(time.perf_counter() - start)
        if not quiet:
            print(f"step {step}: loss {trained.losses[-1]:.4f}", flush=True)
    return trained


if __name__ == "__main__":
    raise SystemExit(main_of(train, "Trains a character GPT on Python's sources."))
