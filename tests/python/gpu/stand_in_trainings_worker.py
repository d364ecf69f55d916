"""Runs one training of the first hour on a GPU, in tiny sizes on the stand-in, in a new process.

stand_in_trainings_worker.py NAME       prints its row as JSON
stand_in_trainings_worker.py --serve    runs many trainings, see forks.py
"""

import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

# Makes products repeatable, with workspaces that fit into tiny budgets.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":16:8")
os.environ.setdefault("CUBLASLT_WORKSPACE_SIZE", "128")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, str(Path(__file__).parents[3] / "tools/gpu_first_hour"))
sys.path.insert(0, str(Path(__file__).parents[3] / "tools/gpu_first_hour/checks"))

import recoup_cuda_stand_in as stand_in
import torch
from torch import Tensor
from trainings import Make, Train, all_trainings

import programs
from forks import SERVE, serve

GIVEN = {"device": "cuda:0", "rehearsal": True}
LOSSES = 3
"""By training, the number of losses at the start of its result."""


def with_finite_losses(make: Make) -> Make:
    """Checks that losses are finite: kernels that compute nothing would give equal results, too."""

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
    row: dict[str, Any] = programs.one(training, GIVEN)
    torch.cuda.synchronize()
    row |= {"races": stand_in.races(), "failures": stand_in.kernel_failures()}
    print(json.dumps(row), flush=True)
    os._exit(0)  # a process of NCCL may wait for other ranks at exit


if __name__ == "__main__":
    if sys.argv[1] == SERVE:
        import transformers  # noqa: F401

        serve(run)
    else:
        run(sys.argv[1:])
