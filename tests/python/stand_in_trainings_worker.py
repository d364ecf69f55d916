"""A training of the first hour on a GPU, in tiny sizes on the stand-in, in a process of its own.

stand_in_trainings_worker.py NAME       prints its row as JSON
stand_in_trainings_worker.py --serve    many, see forks.py
"""

import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

# Products that can be repeated, with workspaces that fit into tiny budgets.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":16:8")
os.environ.setdefault("CUBLASLT_WORKSPACE_SIZE", "128")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, str(Path(__file__).parents[2] / "tools/gpu_first_hour"))

import programs
import recoup_cuda_stand_in as stand_in
import torch
from torch import Tensor
from trainings import Make, Train, all_trainings

from forks import SERVE, serve

TOLD = {"device": "cuda:0", "rehearsal": True}
LOSSES = 3
"""The number of losses with which a training's result begins."""


def with_finite_losses(make: Make) -> Make:
    """Kernels that compute nothing would leave numbers that are equal, but no losses."""

    def made(device: torch.device, tiny: bool) -> Train | str:
        train = make(device, tiny)
        if isinstance(train, str):
            return train

        def run() -> list[Tensor]:
            results = train()
            losses = torch.stack(results[:LOSSES]).double()
            assert losses.shape == (LOSSES,) and losses.isfinite().all(), losses
            return results

        return run

    return made


def run(words: list[str]) -> None:
    (name,) = words
    training = dict(all_trainings())[name]
    training = dataclasses.replace(training, make=with_finite_losses(training.make))
    row: dict[str, Any] = programs.one(training, TOLD)
    torch.cuda.synchronize()
    row |= {"races": stand_in.races(), "failures": stand_in.kernel_failures()}
    print(json.dumps(row), flush=True)
    os._exit(0)  # a process of NCCL's may wait for others at its end


if __name__ == "__main__":
    if sys.argv[1] == SERVE:
        import transformers  # noqa: F401

        serve(run)
    else:
        run(sys.argv[1:])
