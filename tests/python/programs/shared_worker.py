"""One rank of test_shared_budget.py: trains plainly and in a shared budget, and compares the bits.

    torchrun --nproc-per-node 2 shared_worker.py FOLDER

Rank 0 needs far more memory than the others. Writes one JSON object for each program to FOLDER.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

import recoup
from differential import see

WIDTH, LAYERS, STEPS = 128, 6, 4
ROWS, LARGE = 64, 3000
WORDS = 40000
# The budget as a fraction of the sum of the peaks, by the number of ranks. An equal part of it for
# each rank is too small for rank 0, except with tensor_parallel.
FRACTIONS = {2: 0.65, 4: 0.75}


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(WIDTH, 2 * WIDTH)
        self.down = torch.nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + F.dropout(self.down(F.gelu(self.up(x))), 0.1, self.training)


def ddp(model: torch.nn.Module) -> torch.nn.Module:
    return DistributedDataParallel(model)


def fsdp2(model: torch.nn.Module) -> torch.nn.Module:
    for block in model.children():
        fully_shard(block)
    return fully_shard(model)


def tensor_parallel(model: torch.nn.Module) -> torch.nn.Module:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.children():
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return model


class Words:
    """What rank 0 alone trains: a table whose content and gradient cannot be recomputed."""

    def __init__(self) -> None:
        torch.manual_seed(9)
        self.table = torch.nn.Embedding(WORDS, WIDTH)
        self.optimizer = torch.optim.SGD(self.table.parameters(), lr=1e-2, foreach=False)

    def step(self) -> float:
        loss = self.table(torch.randint(WORDS, (100,))).square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()


def trained(wrap: Callable[[torch.nn.Module], torch.nn.Module]) -> list[object]:
    torch.manual_seed(0)
    model = wrap(torch.nn.Sequential(*(Block() for _ in range(LAYERS))))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    rank = dist.get_rank()
    # Tensor parallel ranks compute parts of one batch.
    is_one_batch = wrap is tensor_parallel
    rows = LARGE // 3 if is_one_batch else LARGE if rank == 0 else ROWS
    torch.manual_seed(1 if is_one_batch else 1 + rank)
    words = Words() if rank == 0 and not is_one_batch else None
    losses = []
    for _ in range(STEPS):
        losses += [words.step()] if words else []
        x = torch.randn(rows, WIDTH)
        loss = (model(x) - x.flip(1)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return [losses, [getattr(w, "_local_tensor", w).detach().clone() for w in model.parameters()]]


def compare(name: str, wrap: Callable[[torch.nn.Module], torch.nn.Module]) -> dict[str, object]:
    plain = see(trained(wrap))
    with recoup.budget("1GiB") as loose:
        trained(wrap)
    peaks: list[int] = [0] * dist.get_world_size()
    dist.all_gather_object(peaks, loose.stats().peak_bytes)
    total = int(FRACTIONS[dist.get_world_size()] * sum(peaks))
    fits = True
    try:
        with recoup.budget(total // dist.get_world_size()):
            if dist.get_rank() == 0:
                Words().step()
    except recoup.OutOfBudgetError:
        fits = False
    dist.barrier()
    with recoup.budget(total, share="node") as run:
        same = see(trained(wrap)) == plain
        run.check()
    shared = run.shared_budget()
    assert shared is not None
    return {
        "program": name,
        "same": same,
        "words_fit_in_an_equal_part": fits,
        "within": run.stats().peak_bytes <= shared.most_bytes <= total,
        "most": shared.most_bytes,
        "total": total,
        "waits": shared.waits,
        "wait_ms": shared.wait_ns // 10**6,
        "replays": run.stats().replays,
    }


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    reported = [compare(each.__name__, each) for each in (ddp, fsdp2, tensor_parallel)]
    (folder / f"{dist.get_rank()}.json").write_text(json.dumps(reported))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
