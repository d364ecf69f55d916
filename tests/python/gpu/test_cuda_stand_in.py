"""The stand-in for CUDA itself: it detects errors, and computes as the CPU does.

`make test-cuda-stand-in` runs these tests, with tests/cuda_stand_in in LD_PRELOAD.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
WORKER = ROOT / "tests/cuda_stand_in/python/cuda_stand_in_worker.py"
FIRST_HOUR = ROOT / "tools/gpu_first_hour"
ON_STAND_IN = "CUDA_STAND_IN_KERNELS" in os.environ

pytestmark = pytest.mark.skipif(not ON_STAND_IN, reason="`make test-cuda-stand-in` runs these")

# Functions that PyTorch imports and the stand-in refuses: sharing between processes, compilation at
# run time, conditional nodes and pictures of graphs, memory shared by device and host, contexts
# with a part of a device, and multicast.
REFUSED_RUNTIME = {
    "cudaGraphAddNode",
    "cudaGraphConditionalHandleCreate",
    "cudaGraphDebugDotPrint",
    "cudaIpcOpenEventHandle",
    "cudaIpcOpenMemHandle",
    "cudaLibraryGetGlobal",
    "cudaLibraryGetKernel",
    "cudaLibraryGetKernelCount",
    "cudaLibraryGetManaged",
    "cudaLibraryGetUnifiedFunction",
    "cudaLibraryLoadData",
    "cudaLibraryLoadFromFile",
    "cudaLibraryUnload",
    "cudaMallocManaged",
    "cudaStreamBeginCaptureToGraph",
}
REFUSED_DRIVER = (
    "cuCtxFromGreenCtx",
    "cuDevResource",
    "cuDevSmResource",
    "cuDeviceGetDevResource",
    "cuDeviceGetUuid",
    "cuFunc",
    "cuGreenCtx",
    "cuKernel",
    "cuLaunch",
    "cuLink",
    "cuLogs",
    "cuMemExport",
    "cuMemImport",
    "cuMemsetD32Async",
    "cuModule",
    "cuMulticast",
    "cuOccupancy",
    "cuPointerGetAttribute",
    "cuStreamWriteValue32",
    "cuTensorMap",
)


def run(check: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, str(WORKER), check],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | environment,
    )


def passes(check: str, **environment: str) -> str:
    done = run(check, **environment)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-4000:]
    return done.stderr


def test_the_stand_in_has_every_function_that_pytorch_imports() -> None:
    """Fails first with a new version of PyTorch, and names the missing functions."""
    import stubs
    import torch

    toolkit = Path(os.environ["CUDA_STAND_IN_TOOLKIT"])
    missing = stubs.missing(Path(torch.__file__).parent / "lib", toolkit)
    assert missing[stubs.RUNTIME] <= REFUSED_RUNTIME
    assert all(name.startswith(REFUSED_DRIVER) for name in missing[stubs.DRIVER]), missing


@pytest.mark.parametrize("mode", ["asynchronous", "synchronous"])
def test_kernels_compute_as_the_cpu(mode: str) -> None:
    passes("kernels", CUDA_STAND_IN_SYNCHRONOUS=str(int(mode == "synchronous")))


def test_the_host_cannot_read_the_device() -> None:
    done = run("host_reads_device")
    assert done.returncode == -signal.SIGSEGV
    assert "the host used memory of the device" in done.stderr


@pytest.mark.parametrize("seed", ["1", "2"])
def test_a_missing_wait_is_a_race(seed: str) -> None:
    assert "race (read after write)" in passes("missing_wait", CUDA_STAND_IN_SEED=seed)
    assert "race" not in passes("present_wait", CUDA_STAND_IN_SEED=seed)


def test_a_missing_record_stream_is_a_race() -> None:
    assert "race (write after read)" in passes("missing_record_stream")
    assert "race" not in passes("present_record_stream")


def test_freeing_memory_in_use_is_a_race() -> None:
    assert "race (given back while written)" in passes("unmapped_in_use")


def test_work_on_unmapped_memory_is_an_error() -> None:
    assert "illegal memory access" in passes("freed_in_use")


@pytest.mark.parametrize(
    "check",
    [
        "fresh_memory_is_poisoned",
        "work_is_late",
        "memory_is_limited",
        "an_error_arrives",
        "two_devices",
        "launches_are_recorded",
        "a_graph_is_replayed",
        "a_graph_has_streams",
        "a_capture_that_is_not_joined_fails",
        "a_graph_draws_as_an_eager_program",
        "functions_of_pytorch_2_15",
        "a_forked_child_has_no_gpu",
        "a_child_forked_before_cuda_has_a_gpu",
        "a_spawned_child_has_a_gpu",
    ],
)
def test_stand_in(check: str) -> None:
    passes(check, CUDA_STAND_IN_DEVICES="2")


def test_the_environment_can_inject_an_error() -> None:
    passes("the_first_allocation_fails", CUDA_STAND_IN_FAIL="cudaMalloc:1:2")


def test_the_first_hour_can_be_rehearsed(tmp_path: Path) -> None:
    """A part of it; the whole takes minutes: FIRST_HOUR=1 make test-cuda-stand-in."""
    checks = ("smallest", "resnet50 in 70 %")
    done = subprocess.run(
        [
            *(sys.executable, str(FIRST_HOUR), "--rehearsal", "--device", "cuda:0", "--no-build"),
            *("--out", str(tmp_path), "--only", *checks),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"CUBLAS_WORKSPACE_CONFIG": ":16:8"},  # fits into tiny budgets
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "results.json").read_text())
    assert found["settings"]["gpu"].startswith("CUDA stand-in")
    assert list(found["outcomes"]) == list(checks)
    for name in checks:
        assert found["outcomes"][name]["rows"][-1]["bits"] == "equal"
    assert "A rehearsal: sizes are tiny" in (tmp_path / "page.html").read_text()
