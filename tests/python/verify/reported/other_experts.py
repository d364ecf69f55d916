"""Recomputed routing sends tokens to other experts than the forward pass (torchtitan 1117)."""

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from training import train, variant


class Experts(nn.Module):
    """Each token goes to the expert with the highest score, to which noise is added."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(32, 4)
        self.experts = nn.ModuleList(nn.Linear(32, 32) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        scores = self.router(x)
        scores = scores + 0.1 * torch.randn_like(scores)
        weight, chosen = scores.softmax(-1).max(-1)
        made = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            made = made + expert(x) * (weight * (chosen == number))[:, None]
        return made


class Net(nn.Module):
    """A mixture of experts between two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(32, 32)
        self.moe = Experts()
        self.last = nn.Linear(32, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        if variant() == "checkpoint":
            x = checkpoint(self.moe, x, use_reentrant=False, preserve_rng_state=False)
        else:
            x = self.moe(x)
        made: Tensor = self.last(x)
        return made


if __name__ == "__main__":
    torch.manual_seed(0)
    train(Net())
