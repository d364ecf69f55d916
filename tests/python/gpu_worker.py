"""One check of budgets on a GPU, in a process of its own.

    python gpu_worker.py fakegpu:0 streams 1
    python gpu_worker.py cuda:0 training char_gpt plain

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
import gpu_checks_tensors
from gpu_context import CHECKS, here

__all__ = ["CHECKS", "CUDA_ONLY", "gpu_checks_bits", "gpu_checks_refused", "gpu_checks_tensors"]

# Without a backward pass: a thread of autograd's that still lets go of Python's objects while the
# process ends is ended by Python, and the process with it, in any PyTorch.
END_AS_USUAL = ("random_numbers", "streams", "tensors_outlive_the_scope", "out_of_budget")
CUDA_ONLY = ("fused_attention", "tf32", "graphs_outside_of_budgets")


def main() -> None:
    faulthandler.dump_traceback_later(280, exit=True)
    where, name, *arguments = sys.argv[1:]
    if where.startswith(fakegpu.NAME):
        here.fake = fakegpu.install(seed=int(os.environ.get("RECOUP_TEST_SEED", "1")))
    here.device = torch.device(where)
    function = CHECKS[name]
    inspect.signature(function).bind(*arguments)
    function(*arguments)
    if name not in END_AS_USUAL:
        sys.stdout.flush()
        os._exit(0)


if __name__ == "__main__":
    main()
