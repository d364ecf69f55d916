"""A module that appends to its cache each time it runs, also when recomputed (pytorch 155171)."""

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from training import train, variant


class Cached(nn.Module):
    """Keeps the mean of every batch that it has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(32, 32)
        self.register_buffer("seen", torch.zeros(0))

    def forward(self, x: Tensor) -> Tensor:
        self.seen = torch.cat([self.seen, x.detach().mean()[None]])
        made: Tensor = self.linear(x).relu()
        return made


class Net(nn.Module):
    """The cache, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.cached = Cached()
        self.last = nn.Linear(32, 8)

    def forward(self, x: Tensor) -> Tensor:
        if variant() == "checkpoint":
            x = checkpoint(self.cached, x, use_reentrant=False)
        else:
            x = self.cached(x)
        made: Tensor = self.last(x)
        return made


if __name__ == "__main__":
    torch.manual_seed(0)
    train(Net())
