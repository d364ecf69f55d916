"""Checkpoints around the blocks of a network, or around runs of blocks, as users place them."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from torch import Tensor, nn
from torch.utils import _pytree as pytree

from recoup.bench.nets import Net

Checkpoint = Callable[..., Any]
"""Calls its first argument with the others, and keeps only what its kind of checkpoint keeps."""


class Segment(nn.Module):
    """Consecutive blocks of a chain, called through a checkpoint as one."""

    def __init__(self, blocks: list[nn.Module], alone: bool, checkpoint: Checkpoint) -> None:
        """alone: the blocks take only the result of the previous block."""
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.alone = alone
        self.checkpoint = checkpoint

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        # A checkpoint handles tensors among its arguments as autograd does, but keeps containers of
        # tensors until the graph is freed. So it gets the tensors one by one.
        leaves, form = pytree.tree_flatten((args, kwargs))

        def run(*leaves: Any) -> Any:
            args, kwargs = pytree.tree_unflatten(list(leaves), form)
            return self._run(*args, **kwargs)

        return self.checkpoint(run, *leaves)

    def _run(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        out = x
        for block in self.blocks:
            out = block(x, *args, **kwargs)
            x = out if self.alone or isinstance(out, Tensor) else out[0]
        return out


def chains_of(net: Net, model: nn.Module) -> Iterator[nn.Sequential | nn.ModuleList]:
    """The model's sequences of blocks."""
    for name in net.chains:
        chain = model.get_submodule(name)
        assert isinstance(chain, nn.Sequential | nn.ModuleList)
        yield chain


def in_segments(net: Net, checkpoint: Checkpoint, length: int | None) -> Net:
    """The net with a checkpoint around every `length` consecutive blocks.

    None: the square root of the number of blocks, so that there are as many segments as blocks in
    each (Chen et al., "Training Deep Nets with Sublinear Memory Cost", section 4).
    """

    def make() -> nn.Module:
        model = net.make()
        chains = list(chains_of(net, model))
        each = length or max(1, round(math.sqrt(sum(map(len, chains)))))
        for chain in chains:
            blocks = list(chain)
            alone = isinstance(chain, nn.Sequential)
            del chain[:]
            for start in range(0, len(blocks), each):
                chain.append(Segment(blocks[start : start + each], alone, checkpoint))
        return model

    return replace(net, make=make)
