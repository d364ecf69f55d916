"""A checkpoint that recomputes in another precision than the forward pass (pytorch 141896)."""

import torch
from torch import Tensor, nn
from training import by_hand, train, variant


class Net(nn.Module):
    """A block that runs in bfloat16."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 32))
        self.last = nn.Linear(32, 8)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = by_hand(self.block, x) if variant() == "checkpoint" else self.block(x)
        made: Tensor = self.last(x.float())
        return made


if __name__ == "__main__":
    torch.manual_seed(0)
    train(Net())
