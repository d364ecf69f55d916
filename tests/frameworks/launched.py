"""What the processes of test_launchers.py do: a training, plain or in a shared budget.

    torchrun --nproc-per-node 2 launched.py PROGRAM FOLDER

Each process trains twice, and writes to FOLDER whether both trainings were equal.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import recoup

WIDTH, LAYERS, STEPS, ROWS = 128, 8, 4, 512
BUDGETS = {"ddp": "12MiB", "accelerated": "12MiB", "tensor_parallel": "7MiB"}

Losses = list[float]


def net() -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        *(
            torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Dropout(0.1))
            for _ in range(LAYERS)
        )
    )


def steps(model: torch.nn.Module, backward: Callable[[torch.Tensor], None], seed: int) -> Losses:
    optimizer = torch.optim.AdamW(model.parameters())
    torch.manual_seed(seed)
    losses = []
    for _ in range(STEPS):
        x = torch.randn(ROWS, WIDTH)
        loss = (model(x) - x).square().mean()
        backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def ddp() -> Losses:
    model = torch.nn.parallel.DistributedDataParallel(net())
    return steps(model, torch.Tensor.backward, 1 + dist.get_rank())


def accelerated() -> Losses:
    accelerator = Accelerator(cpu=True)
    return steps(accelerator.prepare(net()), accelerator.backward, 1 + dist.get_rank())


def tensor_parallel() -> Losses:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = net()
    for index, block in enumerate(model):
        kind = RowwiseParallel() if index % 2 else ColwiseParallel()
        parallelize_module(block, mesh, {"0": kind})
    for index in range(0, LAYERS, 2):
        model[index][1] = torch.nn.Identity()  # its argument is a part
    return steps(model, torch.Tensor.backward, 1)


PROGRAMS: dict[str, Callable[[], Losses]] = {
    "ddp": ddp,
    "accelerated": accelerated,
    "tensor_parallel": tensor_parallel,
}


def compare(program: Callable[[], Losses], folder: Path) -> None:
    """Trains plainly and in a shared budget, and writes what they did."""
    plain = program()
    with recoup.budget(BUDGETS[program.__name__], share="node") as run:
        is_same = program() == plain
    shared = run.shared_budget()
    assert shared is not None
    reported = {
        "same": is_same,
        "most": shared.most_bytes,
        "total": shared.total_bytes,
        "replays": run.stats().replays,
    }
    (folder / f"{dist.get_rank()}.json").write_text(json.dumps(reported))


if __name__ == "__main__":
    dist.init_process_group("gloo")
    compare(PROGRAMS[sys.argv[1]], Path(sys.argv[2]))
    dist.destroy_process_group()
