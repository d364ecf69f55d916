"""A checkpoint updates the statistics of BatchNorm twice (pytorch 96136)."""

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from training import train, variant


class Net(nn.Module):
    """A block with BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(32, 32), nn.BatchNorm1d(32), nn.ReLU())
        self.last = nn.Linear(32, 8)

    def forward(self, x: Tensor) -> Tensor:
        if variant() == "checkpoint":
            x = checkpoint(self.block, x, use_reentrant=False)
        else:
            x = self.block(x)
        made: Tensor = self.last(x)
        return made


if __name__ == "__main__":
    torch.manual_seed(0)
    train(Net())
