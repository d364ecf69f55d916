"""A checkpoint written by hand that draws dropout again in backward (guided-diffusion 167)."""

import torch
from torch import Tensor, nn
from training import by_hand, train, variant


class Net(nn.Module):
    """A block with dropout between two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(32, 32)
        self.block = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 32))
        self.last = nn.Linear(32, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        x = by_hand(self.block, x) if variant() == "checkpoint" else self.block(x)
        made: Tensor = self.last(x)
        return made


if __name__ == "__main__":
    torch.manual_seed(0)
    train(Net())
