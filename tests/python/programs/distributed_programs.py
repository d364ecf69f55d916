"""Programs that ranks run together: small nets under every kind of parallelism, on gloo.

Each takes (rank, world) and returns the results of the rank.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
import torch.distributed.checkpoint as dcp
import torch.distributed.pipelining as pipelining
import torch.nn.functional as F
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    FSDPModule,
    FullyShardedDataParallel,
    MixedPrecisionPolicy,
    fully_shard,
)
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_leaves

import recoup
from recoup import _C

WIDTH, LAYERS, STEPS, BATCH = 64, 4, 3, 512

Program = Callable[[int, int], list[object]]


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.up = torch.nn.Linear(WIDTH, 2 * WIDTH)
        self.down = torch.nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + F.dropout(self.down(F.gelu(self.up(self.norm(x)))), 0.1, self.training)


def net(seed: int = 0) -> torch.nn.Sequential:
    torch.manual_seed(seed)
    return torch.nn.Sequential(*(Block() for _ in range(LAYERS)))


def data(rank: int, step: int) -> torch.Tensor:
    return torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(100 * rank + step))


def error_of(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return (y - x.flip(1)).square().mean()


def part(weights: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """This rank's part of each weight."""
    return [getattr(w, "_local_tensor", w).detach().clone() for w in weights]


def one_step(model: torch.nn.Module, optimizer: Any, x: torch.Tensor, clips: bool = False) -> float:
    loss = error_of(model(x), x)
    loss.backward()
    if clips:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def steps(model: torch.nn.Module, optimizer: Any, rank: int, count: int = STEPS) -> list[object]:
    clips = isinstance(model, DistributedDataParallel | FSDPModule)
    return [one_step(model, optimizer, data(rank, step), clips) for step in range(count)]


def trained(model: torch.nn.Module, rank: int) -> list[object]:
    torch.manual_seed(1 + rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return [steps(model, optimizer, rank), part(model.parameters())]


# ---- data parallel ----


def ddp(rank: int, world: int) -> list[object]:
    return trained(DistributedDataParallel(net(), bucket_cap_mb=0.05), rank)


class Batches(torch.utils.data.Dataset[torch.Tensor]):
    def __init__(self, rank: int) -> None:
        self.rank = rank

    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, step: int) -> torch.Tensor:
        return F.dropout(data(self.rank, step).exp(), 0.5).log1p()


def ddp_loader(rank: int, world: int) -> list[object]:
    """Its batches come from workers that are forked in each epoch, while gloo's threads run."""
    model = DistributedDataParallel(net(), bucket_cap_mb=0.05)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    torch.manual_seed(1 + rank)
    loader = torch.utils.data.DataLoader(Batches(rank), batch_size=None, num_workers=2)
    losses = [one_step(model, optimizer, x) for _ in range(2) for x in loader]
    return [losses, part(model.parameters())]


def ddp_view(rank: int, world: int) -> list[object]:
    return trained(DistributedDataParallel(net(), gradient_as_bucket_view=True), rank)


def ddp_unused(rank: int, world: int) -> list[object]:
    """More parameters than fit an always resident record; some of them have no gradient."""

    class Some(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net()
            self.unused = torch.nn.ParameterList(torch.zeros(1) for _ in range(300))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = self.net(x)
            return made

    return trained(DistributedDataParallel(Some(), find_unused_parameters=True), rank)


def ddp_hook(rank: int, world: int) -> list[object]:
    """A future's callback writes the bucket on a thread of the process group."""
    model = DistributedDataParallel(net(), bucket_cap_mb=0.05)
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    return trained(model, rank)


def fsdp1(rank: int, world: int) -> list[object]:
    model = net()
    cpu = torch.device("cpu")
    for i, block in enumerate(model):
        model[i] = FullyShardedDataParallel(block, device_id=cpu)
    return trained(FullyShardedDataParallel(model, device_id=cpu), rank)


def sharded(**options: Any) -> torch.nn.Module:
    model = net()
    for block in model:
        fully_shard(block, **options)
    return fully_shard(model, **options)


def fsdp2(rank: int, world: int) -> list[object]:
    return trained(sharded(), rank)


def fsdp2_bf16(rank: int, world: int) -> list[object]:
    """Gathered in one type and reduced in another; gathered parameters stay gathered."""
    policy = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16, reduce_dtype=torch.float32, output_dtype=torch.float32
    )
    return trained(sharded(mp_policy=policy, reshard_after_forward=False), rank)


# ---- tensor and sequence parallel ----


def tensor_parallel(rank: int, world: int) -> list[object]:
    mesh = init_device_mesh("cpu", (world,))
    model = net()
    for block in model:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return trained(model, 0)


def sequence_parallel(rank: int, world: int) -> list[object]:
    mesh = init_device_mesh("cpu", (world,))
    model = net()
    plan = {
        "norm": SequenceParallel(sequence_dim=0),
        "up": ColwiseParallel(input_layouts=Shard(0)),
        "down": RowwiseParallel(output_layouts=Shard(0), use_local_output=False),
    }
    for block in model:
        parallelize_module(block, mesh, plan)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for step in range(STEPS):
        x = distribute_tensor(data(0, step), mesh, [Shard(0)])
        loss = (model(x) - x).square().mean().full_tensor()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return [losses, part(model.parameters())]


def tensor_and_data_parallel(rank: int, world: int) -> list[object]:
    mesh = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("data", "tensor"))
    model = net()
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    for block in model:
        parallelize_module(block, mesh["tensor"], plan)
        fully_shard(block, mesh=mesh["data"])
    fully_shard(model, mesh=mesh["data"])
    torch.manual_seed(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, foreach=False)
    losses = [one_step(model, optimizer, data(rank // 2, step)) for step in range(STEPS)]
    return [losses, part(model.parameters())]


# ---- pipelines ----


def _pipelined(schedule: type, rank: int, world: int) -> list[object]:
    model = net(rank).eval()
    stage = pipelining.PipelineStage(model, rank, world, torch.device("cpu"))
    run = schedule(stage, 4, loss_fn=error_of)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    seen: list[object] = []
    for step in range(STEPS):
        x = data(0, step)
        losses: list[torch.Tensor] = []
        last = {"target": x, "losses": losses} if rank == world - 1 else {}
        run.step(*([x] if rank == 0 else []), **last)
        optimizer.step()
        optimizer.zero_grad()
        seen += [loss.item() for loss in losses]
    return [seen, part(model.parameters())]


def gpipe(rank: int, world: int) -> list[object]:
    return _pipelined(pipelining.ScheduleGPipe, rank, world)


def one_forward_one_backward(rank: int, world: int) -> list[object]:
    return _pipelined(pipelining.Schedule1F1B, rank, world)


# ---- checkpoints ----


def checkpoint(rank: int, world: int) -> list[object]:
    """Saves, continues, loads the checkpoint and continues from there."""
    model = sharded()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    torch.manual_seed(1 + rank)
    seen = steps(model, optimizer, rank, 2)
    folder = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder, 0)
    saved = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
    dcp.save(saved, checkpoint_id=folder[0])
    seen += steps(model, optimizer, rank, 1)
    loaded = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
    dcp.load(loaded, checkpoint_id=folder[0])
    set_state_dict(
        model, optimizer, model_state_dict=loaded["model"], optim_state_dict=loaded["optimizer"]
    )
    seen += steps(model, optimizer, rank, 2)
    dist.barrier()
    if rank == 0:
        shutil.rmtree(Path(str(folder[0])))
    return [seen, part(model.parameters())]


# ---- explicit collectives ----


def by_hand(rank: int, world: int) -> list[object]:
    """Collectives are in progress while other ops need their memory; some are never waited for."""
    model = net()
    torch.manual_seed(1 + rank)
    x = data(rank, 0)
    after, before = (rank + 1) % world, (rank - 1) % world
    sums, works, received, h = [], [], [], x
    for tag, block in enumerate(model):
        h = block(h)
        total = h.detach() * 2
        works.append(dist.all_reduce(total, async_op=True))
        sums.append(total)
        into = torch.empty(BATCH, WIDTH)
        works += [dist.isend(h.detach(), after, tag=tag), dist.irecv(into, before, tag=tag)]
        received.append(into)
        reduced = torch.empty(BATCH // world, WIDTH)
        dist.reduce_scatter_tensor(reduced, h.detach() * 3)
        sums.append(reduced)
    loss = error_of(h, x)
    for work in works:
        work.wait()
    (loss + sum((h * each).mean() for each in received)).backward()
    dropped = [p.grad for p in model.parameters()]
    for gradient in dropped:
        dist.all_reduce(gradient, async_op=True)
    dist.barrier()  # waits until they have ended, in the order of the calls
    return [loss.item(), sums, received, dropped, part(model.parameters())]


def each_collective(rank: int, world: int) -> list[object]:
    """Inputs are computed, and evicted after the collective: a replay must give their values."""

    def made(scale: float) -> torch.Tensor:
        return (torch.arange(BATCH * WIDTH) % 97 * (rank + 1.5)).view(BATCH, WIDTH) * scale

    def parts(x: torch.Tensor) -> list[torch.Tensor]:
        return [each.clone() for each in x.chunk(world)]

    def like(x: torch.Tensor, count: int) -> list[torch.Tensor]:
        return [torch.zeros_like(x) for _ in range(count)]

    seen: list[torch.Tensor] = []

    def call(collective: Callable[..., Any], *tensors: Any, **kwargs: Any) -> None:
        collective(*tensors, **kwargs)
        taken = [each for each in tree_leaves(tensors) if isinstance(each, torch.Tensor)]
        taken += [each * 2 for each in taken]
        for each in taken if _C.active() else []:
            recoup.evict(each)
        seen.extend(taken)

    x, small = made(1), made(2)[: BATCH // world]
    whole = torch.zeros(world * BATCH, WIDTH)
    first = rank == 0
    call(dist.all_reduce, made(3))
    call(dist.all_reduce_coalesced, [made(4), made(5)])
    call(dist.reduce, made(6), 0)
    call(dist.broadcast, made(7), 0)
    call(dist.all_gather, like(x, world), made(8))
    call(dist.all_gather_into_tensor, whole, made(9))
    call(dist.all_gather_coalesced, [like(x, 2) for _ in range(world)], [made(10), made(11)])
    call(dist.gather, made(12), like(x, world) if first else None)
    call(dist.scatter, torch.zeros_like(x), [made(13), made(14)] * (world // 2) if first else None)
    call(dist.reduce_scatter, torch.zeros_like(small), parts(made(15)))
    call(dist.reduce_scatter_tensor, torch.zeros_like(small), made(16))
    call(dist.all_to_all, like(small, world), parts(made(17)))
    call(dist.all_to_all_single, torch.zeros_like(x), made(18))
    after, before = (rank + 1) % world, (rank - 1) % world
    call(dist.send if first else dist.recv, made(19), after if first else before)
    call(dist.recv if first else dist.send, made(20), before if first else after)
    sent = dist.isend(made(21), after)
    call(dist.recv, made(22), None)
    sent.wait()
    dist.barrier()
    for functional in (
        collectives.all_gather_tensor(made(23), 0, dist.group.WORLD),
        collectives.reduce_scatter_tensor(made(24), "sum", 0, dist.group.WORLD),
        collectives.all_reduce(made(25), "sum", dist.group.WORLD),
    ):
        call(collectives.wait_tensor, functional)
    return [seen]


PROGRAMS: dict[str, Program] = {
    each.__name__: each
    for each in (
        ddp,
        ddp_loader,
        ddp_view,
        ddp_unused,
        ddp_hook,
        fsdp1,
        fsdp2,
        fsdp2_bf16,
        tensor_parallel,
        sequence_parallel,
        tensor_and_data_parallel,
        gpipe,
        one_forward_one_backward,
        checkpoint,
        by_hand,
        each_collective,
    )
}
