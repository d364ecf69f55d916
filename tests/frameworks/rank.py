"""One rank of test_ranks.py, which torchrun starts: it compares its losses and its part of weights.

    torchrun --nproc-per-node 2 rank.py KIND FOLDER

Writes what its run in the budget did to FOLDER.
"""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import transformers
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import compare
import conftest  # noqa: F401 (nothing is downloaded)
import recoup
from models import Texts, gpt2
from recoup.integrations import TrainerBudget
from test_trainer import result_of, trainer_of


def ddp() -> torch.nn.Module:
    return DistributedDataParallel(gpt2())


def fsdp2() -> torch.nn.Module:
    model = gpt2()
    for block in model.transformer.h:
        fully_shard(block)
    return fully_shard(model)


MODELS = {"ddp": ddp, "fsdp2": fsdp2}


def train(kind: str) -> compare.Trained:
    model = MODELS[kind]()
    torch.manual_seed(dist.get_rank())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = Texts(96)
    sampler = torch.utils.data.DistributedSampler(data, shuffle=False)
    losses = []
    for batch in torch.utils.data.DataLoader(data, batch_size=8, sampler=sampler):
        loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    # Of FSDP2 this rank's part.
    state = {name: getattr(w, "_local_tensor", w) for name, w in model.state_dict().items()}
    return compare.Trained(losses, compare.copies(state))


def in_fraction(kind: str) -> tuple[recoup.Stats, int]:
    run = compare.check(kind, lambda: train(kind))
    [(_, _, peak)] = compare.ROWS
    return run.stats(), peak


def trainer_in_fraction(folder: Path) -> tuple[recoup.Stats, int]:
    def trained(*callbacks: transformers.TrainerCallback) -> compare.Trained:
        trainer = trainer_of(folder, ddp_backend="gloo")
        for each in callbacks:
            trainer.add_callback(each)
        trainer.train()
        return result_of(trainer)

    plain, peak = trained(), compare.peak_of(trained)
    budget = TrainerBudget(int(compare.FRACTION * peak))
    compare.assert_same(plain, trained(budget))
    assert budget.run is not None
    compare.assert_squeezed("Trainer", budget.run.stats(), peak)
    return budget.run.stats(), peak


def main(kind: str, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    stats, peak = trainer_in_fraction(folder) if kind == "trainer" else in_fraction(kind)
    report = {"stats": stats.to_dict(), "peak_bytes": peak}
    (folder / f"{rank}.json").write_text(json.dumps(report))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
