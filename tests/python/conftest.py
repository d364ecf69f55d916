"""Fixtures and settings that all Python tests share."""

import gc
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

# OpenMP threads sleep while they wait, in this process and in processes that tests start. On a
# machine with other work, spinning makes small kernels a thousand times slower. PyTorch reads the
# variable when it is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from script import python_path

# Processes that tests start import from the same folders as the tests.
os.environ["PYTHONPATH"] = python_path()

import pytest
import torch

import recoup
import warm_python

# Exempts the objects that are loaded by now from garbage collection. An exit that does not fit
# runs the collector, which takes 0.1 s if it traverses all of PyTorch's objects, and tests make
# thousands of such exits.
gc.collect()
gc.freeze()


def pytest_collection_finish() -> None:
    """Starts the server of processes, with the environment that the test modules leave.

    Not for serial tests: they measure, and use PyTorch's default number of threads.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        warm_python.install()
        _show_native_stacks()


def _show_native_stacks() -> None:
    """Lets a crash print the native stacks of all threads, which Python's handler does not know."""
    handler = signal.getsignal(signal.SIGINT)
    torch._C._set_print_stack_traces_on_fatal_signal(True)  # type: ignore[attr-defined]
    signal.signal(signal.SIGINT, handler)


@pytest.fixture(autouse=True, scope="module")
def freeze_what_tests_loaded() -> None:
    """Exempts the parts of PyTorch that earlier tests of this process have loaded, too.

    Modules that they loaded may have set variables, which the server of processes has to know.

    Only if other test processes run in parallel: tests marked `serial` need the collector to find
    references to tensors in variables of their modules, which are loaded by now.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        gc.collect()
        gc.freeze()
        warm_python.update()


@pytest.fixture(autouse=True)
def no_leak() -> Iterator[None]:
    """Checks that the test leaves no scope open and the number of threads unchanged."""
    threads = torch.get_num_threads()
    yield
    assert not recoup._C.active(), "the test left a scope open"
    assert torch.get_num_threads() == threads, "the test left another number of threads"


@pytest.fixture
def usual_threads() -> Iterator[None]:
    """Restores the number of threads that a test changes."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def bits_equal(a: Any, b: Any) -> bool:
    """Whether two tensors, or nested lists and dicts of them, have the same bits, NaN included."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        if a.shape != b.shape or a.dtype != b.dtype or a.layout != b.layout:
            return False
        a, b = a.detach(), b.detach()
        if a.layout != torch.strided:
            a, b = a.to_dense(), b.to_dense()
        return torch.equal(_bytes(a), _bytes(b))
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(bits_equal(a[key], b[key]) for key in a)
    if isinstance(a, Sequence) and not isinstance(a, str) and isinstance(b, Sequence):
        return len(a) == len(b) and all(map(bits_equal, a, b))
    return type(a) is type(b) and (a == b or (a != a and b != b))


def halves() -> torch.Tensor:
    """A recomputable value, large enough to be evicted; its sums are exact."""
    return torch.arange(4096.0).mul(0.5)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)


# A shell makes its background jobs ignore Ctrl-C; Python then installs no handler for SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(params=[1, 2], ids=["one thread", "two threads"])
def one_and_two_threads(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that uses it runs with one thread in kernels, and with two."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)
