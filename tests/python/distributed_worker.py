"""One of the ranks of test_distributed.py: trains plainly and in budgets, and compares the bits.

    python distributed_worker.py KIND RANK WORLD FILE

Prints one JSON object for each share of the peak. FILE is where the ranks find one another.
"""

import json
import sys
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

import recoup
from differential import see

WIDTH, LAYERS, STEPS = 32, 6, 4
SHARES = (0.6, 0.4)


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.up = torch.nn.Linear(WIDTH, 4 * WIDTH)
        self.down = torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + F.dropout(self.down(F.gelu(self.up(self.norm(x)))), 0.1)


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(*(Block() for _ in range(LAYERS)))


def ddp() -> torch.nn.Module:
    return DistributedDataParallel(model())


def fsdp2() -> torch.nn.Module:
    made = model()
    for block in made.children():
        fully_shard(block)
    return fully_shard(made)


def fsdp2_bf16() -> torch.nn.Module:
    """Gathered in one type and reduced in another; a gradient is kept over two backwards."""
    made = model()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in made.children():
        fully_shard(block, mp_policy=policy)
    return fully_shard(made, mp_policy=policy, reshard_after_forward=False)


KINDS: dict[str, Callable[[], torch.nn.Module]] = {
    made.__name__: made for made in (ddp, fsdp2, fsdp2_bf16)
}


def train(kind: str, rank: int) -> list[object]:
    net = KINDS[kind]()
    torch.manual_seed(1 + rank)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    losses = []
    for step in range(STEPS):
        x = torch.randn(64, 16, WIDTH)
        loss = (net(x) - x.flip(1)).square().mean()
        losses.append(loss.item())
        loss.backward()
        if kind != "fsdp2_bf16" or step % 2:
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    weights = [getattr(p, "_local_tensor", p).detach().clone() for p in net.parameters()]
    return see([losses, weights])


def main(kind: str, rank: int, world: int, file: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{file}", rank=rank, world_size=world)
    plain = train(kind, rank)
    with recoup.budget("1GiB") as run:
        train(kind, rank)
    peak = run.stats().peak_bytes
    for share in SHARES:
        with recoup.budget(int(share * peak)) as run:
            same = train(kind, rank) == plain
            run.check()
        stats = run.stats()
        within = stats.peak_bytes <= stats.budget_bytes < peak
        print(json.dumps({"same": same, "within": within, "replays": stats.replays}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
