"""A compiler that recomputes dropout in backward to save memory (pytorch 190758)."""

import torch
from torch import nn
from training import train, variant


def make() -> nn.Module:
    """Layers with dropout."""
    return nn.Sequential(
        nn.Linear(32, 64),
        nn.GELU(),
        nn.Dropout(0.5),
        nn.Linear(64, 64),
        nn.GELU(),
        nn.Dropout(0.5),
        nn.Linear(64, 8),
    )


if __name__ == "__main__":
    import torch._functorch.config

    torch.manual_seed(0)
    net = make()
    if variant() != "plain":
        torch._functorch.config.activation_memory_budget = float(variant())
    train(torch.compile(net, backend="aot_eager_decomp_partition"))
