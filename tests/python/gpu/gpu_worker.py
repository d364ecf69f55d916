"""Runs one check of budgets on a GPU in a new process.

    python gpu_worker.py fakegpu:0 streams 1
    python gpu_worker.py cuda:0 training char_gpt plain
    python gpu_worker.py --serve                            runs many checks, see forks.py

The last words are arguments of the check. A check that has nothing to test prints why.
"""

import faulthandler
import importlib
import inspect
import os
import sys

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Makes products repeatable. The larger workspaces, :4096:8, take 32 MiB for each thread: more than
# most budgets of these checks.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":16:8")
# In KiB. Up to PyTorch 2.14 the workspaces of cuBLASLt have at most this size; in 2.15, 1 MiB.
os.environ.setdefault("CUBLASLT_WORKSPACE_SIZE", "128")

import torch

import fakegpu
import gpu_checks_bits
import gpu_checks_captures
import gpu_checks_graphs
import gpu_checks_import
import gpu_checks_kernels
import gpu_checks_order
import gpu_checks_programs
import gpu_checks_refused
import gpu_checks_spill
import gpu_checks_tensors
from forks import HANG_SECONDS, SERVE, serve
from gpu_context import CHECKS, here
from recoup.bench.nets.tiny import NETS

__all__ = [
    "ALONE",
    "CHECKS",
    "CUDA_ONLY",
    "EXPANDABLE",
    "EXPANDABLE_SEGMENTS",
    "gpu_checks_bits",
    "gpu_checks_captures",
    "gpu_checks_graphs",
    "gpu_checks_import",
    "gpu_checks_kernels",
    "gpu_checks_order",
    "gpu_checks_programs",
    "gpu_checks_refused",
    "gpu_checks_spill",
    "gpu_checks_tensors",
]

# Checks without a backward pass. If an autograd thread still frees Python objects at the end of the
# process, Python ends the thread and the process with it, also without recoup.
END_AS_USUAL = ("random_numbers", "streams", "tensors_outlive_the_scope", "out_of_budget")
CUDA_ONLY = (
    "fused_attention",
    "recurrent_layers",
    "tf32",
    "graphs_outside_of_budgets",
    "graphs_keep_everything_outside",
    "an_allocation_is_ordered_on_the_requesting_stream",
    "a_pinned_loader_and_a_copy_stream",
    "mixed_precision_with_a_scaler",
    "checkpoints_inside",
    "a_memory_pool_outside_of_scopes",
    "pytorchs_allocator_answers_inside_a_budget",
    "the_driver_fails_at_each_call_in_turn",
    *(
        name
        for name, each in CHECKS.items()
        if each.__module__ in (gpu_checks_graphs.__name__, gpu_checks_captures.__name__)
    ),
)
# Checks that also run with expandable segments in PyTorch's allocator.
EXPANDABLE = (
    "budgets_on_several_devices",
    "streams",
    "tensors_outlive_the_scope",
    "frees_on_other_threads",
    "the_driver_gives_no_more_than_the_budget",
    "memory_is_counted",
    "pytorchs_allocator_is_restored",
    "memory_read_by_a_replay_is_not_reused_before_it",
    "a_model_from_before_the_scope_is_trained",
)
# Checks that measure the memory of the whole device: no other process may use it meanwhile.
ALONE = ("fractions", "the_driver_gives_no_more_than_the_budget", "traces_are_recorded")
EXPANDABLE_SEGMENTS = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}


def run(words: list[str]) -> None:
    where, name, *arguments = words
    if where.startswith(fakegpu.NAME):
        here.fake = fakegpu.install(seed=int(os.environ.get("RECOUP_TEST_SEED", "1")))
    here.device = torch.device(where)
    if "CUDA_STAND_IN_KERNELS" in os.environ:
        here.stand_in = importlib.import_module("recoup_cuda_stand_in")
    function = CHECKS[name]
    inspect.signature(function).bind(*arguments)
    function(*arguments)
    if here.stand_in is not None:
        assert_orderly()
    if name not in END_AS_USUAL:
        sys.stdout.flush()
        os._exit(0)


def assert_orderly() -> None:
    """On the stand-in: there were no races, and all work was computed."""
    torch.cuda.synchronize()
    races = here.stand_in.races()
    assert races == 0, f"{races} races"
    failures = here.stand_in.kernel_failures()
    assert not failures, failures


def load_nets() -> None:
    """Loads the modules of the networks, which PyTorch loads on their first use."""
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
