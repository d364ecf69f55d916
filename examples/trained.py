"""The results of a training, bitwise comparison of two trainings, and the command line of both."""

import argparse
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

import recoup


@dataclass
class Trained:
    model: nn.Module
    optimizer: torch.optim.Optimizer
    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)  # of each step

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Losses, parameters and buffers, gradients, optimizer state."""
        yield "losses", torch.tensor(self.losses, dtype=torch.float64)
        yield from self.model.state_dict().items()
        for name, parameter in self.model.named_parameters():
            if parameter.grad is not None:
                yield f"gradient of {name}", parameter.grad
        for index, state in enumerate(self.optimizer.state.values()):
            for name, value in state.items():
                if isinstance(value, Tensor):
                    yield f"{name} {index}", value

    def distinct(self) -> Iterator[Tensor]:
        """Tensors that training keeps, each memory once: modules may share a parameter."""
        seen = set()
        for name, tensor in self.tensors():
            if name != "losses" and tensor.data_ptr() not in seen:
                seen.add(tensor.data_ptr())
                yield tensor


def bytes_of(tensor: Tensor) -> Tensor:
    """The bytes instead of numbers, so that NaNs and signed zeros are compared too."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def first_difference(a: Trained, b: Trained) -> str | None:
    """The name of the first tensor that differs in a bit; None if all are equal."""
    ours, theirs = dict(a.tensors()), dict(b.tensors())
    if ours.keys() != theirs.keys():
        return min(ours.keys() ^ theirs.keys())
    for name in ours:
        if not torch.equal(bytes_of(ours[name]), bytes_of(theirs[name])):
            return name
    return None


def digests(trained: Trained) -> dict[str, str]:
    """Digests by name, to compare trainings that are not in memory at the same time."""
    return {
        name: hashlib.sha256(bytes_of(tensor).numpy().data).hexdigest()
        for name, tensor in trained.tensors()
    }


def first_other(a: dict[str, str], b: dict[str, str]) -> str | None:
    """`first_difference` for digests."""
    names = a.keys() ^ b.keys() or {name for name in a if a[name] != b[name]}
    return min(names, default=None)


def main_of(train: Callable[..., Trained], description: str) -> int:
    """The command line of a program with that training. Returns the exit code."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budget", help="bytes, or a size such as 60MB; none: plain PyTorch")
    parser.add_argument("--policy", default="dtr", help="see `recoup policies`")
    parser.add_argument(
        "--compare", action="store_true", help="train plainly too, compare the bits"
    )
    args = parser.parse_args()

    if args.budget is None:
        train(args.steps, args.seed)
        return 0
    with recoup.budget(args.budget, policy=args.policy) as run:
        trained = train(args.steps, args.seed)
    print(run.report())
    if not args.compare:
        return 0
    difference = first_difference(trained, train(args.steps, args.seed, quiet=True))
    if difference is not None:
        print(f"BITS DIFFER from plain PyTorch, first in: {difference}")
        return 1
    print("bits equal to plain PyTorch")
    return 0
