"""The decorator of PyTorch's CUDA allocator, without a GPU and on any PyTorch: forwarded calls,
owners of addresses, installation and removal.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import fakegpu
from cuda_decorator_worker import CHECKS
from forks import Server

WORKER = Path(__file__).with_name("cuda_decorator_worker.py")
INCLUDE = Path(torch.__file__).parent / "include"
FORWARDED = "forwarded"
OF_PYTORCH = "over_pytorch"
OTHERS = [name for name in CHECKS if name not in (FORWARDED, OF_PYTORCH)]

pytestmark = pytest.mark.skipif(
    fakegpu.path_of_extension("_test_cuda_decorator") is None,
    reason="`make test-device` was not run, or there is no CUDA toolkit",
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(WORKER, TORCH_CPP_LOG_LEVEL="ERROR") as server:
        yield server


def virtual_methods(header: str, opening: str) -> list[str]:
    """Names of the virtual methods that the class in the header declares, one for each overload."""
    text = (INCLUDE / header).read_text(encoding="utf-8")
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    begin = text.index(opening)
    body = text[begin : text.index("\n};", begin)]
    names = re.findall(r"\bvirtual\b[^;{}()]*?(~?\w+)\s*\(", body)
    return [name for name in names if not name.startswith("~")]


def all_virtual_methods() -> list[str]:
    cuda = virtual_methods("c10/cuda/CUDACachingAllocator.h", "class CUDAAllocator :")
    device = virtual_methods(
        "c10/core/CachingDeviceAllocator.h", "struct C10_API DeviceAllocator :"
    )
    allocator = virtual_methods("c10/core/Allocator.h", "struct C10_API Allocator {")
    return [*allocator, *device, *cuda]


def test_the_headers_have_the_expected_classes() -> None:
    names = Counter(all_virtual_methods())
    assert names["recordStream"] == 2
    assert len(names) > 45
    # Pure and other virtual methods of each class.
    assert {"allocate", "raw_deleter", "initialized", "getMemoryInfo"} < set(names)
    assert {"raw_alloc", "setNoSplit", "setUserMetadata", "name"} < set(names)


def test_every_virtual_method_is_forwarded(server: Server) -> None:
    """Fails for a new method of PyTorch: forward it, or route it if it takes an address."""
    done = server.run(FORWARDED)
    assert done.returncode == 0, done.stderr[-4000:]
    assert Counter(json.loads(done.stdout)) == Counter(all_virtual_methods())


@pytest.mark.parametrize(
    "check", [name for name in CHECKS if name not in (OF_PYTORCH, "forwarded")]
)
def test_cuda_decorator(check: str, server: Server) -> None:
    done = server.run(check)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.skipif(torch.version.cuda is None, reason="a PyTorch without CUDA")
def test_pytorchs_own_allocator_is_unchanged(server: Server) -> None:
    done = server.run(OF_PYTORCH)
    assert done.returncode == 0, done.stderr[-4000:]
