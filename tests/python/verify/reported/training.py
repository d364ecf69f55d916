"""The training that the programs of this folder share, and a checkpoint written by hand."""

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


def variant() -> str:
    """The word after `--variant`; "plain" without one."""
    return sys.argv[sys.argv.index("--variant") + 1] if "--variant" in sys.argv else "plain"


def train(model: nn.Module, inputs: tuple[int, ...] = (512, 32), steps: int = 3) -> None:
    """Trains the model on random data, and prints the loss of each step."""
    data = torch.Generator().manual_seed(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(steps):
        loss = model(torch.randn(inputs, generator=data)).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(loss.item())


class _Checkpoint(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, run: Callable[[Tensor], Tensor], x: Tensor, *parameters: Tensor) -> Any:
        ctx.run, ctx.parameters = run, parameters
        ctx.save_for_backward(x)
        with torch.no_grad():
            return run(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            made = ctx.run(x)
        return None, *torch.autograd.grad(made, (x, *ctx.parameters), grads)


def by_hand(module: nn.Module, x: Tensor) -> Tensor:
    """Runs the module again in backward. Neither random numbers nor autocast are restored."""
    made: Tensor = _Checkpoint.apply(module, x.requires_grad_(), *module.parameters())
    return made
