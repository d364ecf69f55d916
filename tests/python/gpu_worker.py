"""One check of budgets on a GPU, in a process of its own.

    python gpu_worker.py fakegpu:0 streams 1
    python gpu_worker.py cuda:0 training char_gpt plain
    python gpu_worker.py --serve                            many, see forks.py

The last words are the check's own arguments. Prints why when there is nothing to check.
"""

import faulthandler
import inspect
import os
import sys

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # products that can be repeated

import torch

import fakegpu
import gpu_checks_bits
import gpu_checks_refused
import gpu_checks_spill
import gpu_checks_tensors
from forks import HANG_SECONDS, SERVE, serve
from gpu_context import CHECKS, here
from recoup.bench.nets.tiny import NETS

__all__ = [
    "CHECKS",
    "CUDA_ONLY",
    "gpu_checks_bits",
    "gpu_checks_refused",
    "gpu_checks_spill",
    "gpu_checks_tensors",
]

# Without a backward pass: a thread of autograd's that still lets go of Python's objects while the
# process ends is ended by Python, and the process with it, in any PyTorch.
END_AS_USUAL = ("random_numbers", "streams", "tensors_outlive_the_scope", "out_of_budget")
CUDA_ONLY = ("fused_attention", "tf32", "graphs_outside_of_budgets")


def run(words: list[str]) -> None:
    where, name, *arguments = words
    if where.startswith(fakegpu.NAME):
        here.fake = fakegpu.install(seed=int(os.environ.get("RECOUP_TEST_SEED", "1")))
    here.device = torch.device(where)
    function = CHECKS[name]
    inspect.signature(function).bind(*arguments)
    function(*arguments)
    if name not in END_AS_USUAL:
        sys.stdout.flush()
        os._exit(0)


def load_nets() -> None:
    """What they are made of is loaded when they are first made."""
    for net in NETS:
        with torch.device("meta"):
            net.make()


if __name__ == "__main__":
    if sys.argv[1] == SERVE:
        load_nets()
        serve(run)
    else:
        faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
        run(sys.argv[1:])
