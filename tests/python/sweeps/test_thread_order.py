"""Ops whose result depends on the order of threads give the same bits in a replay.

The worker shows each op that differs between runs of plain PyTorch:
`python tests/python/script.py threads_worker --only index_put`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import recoup
from recoup import _C
from script import python_path

WORKER = Path(__file__).with_name("threads_worker.py")


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def sweep(*arguments: str) -> tuple[dict[str, str], set[str]]:
    """The arguments of each op that differs between runs, and the names of the ops that ran."""
    worker = subprocess.run(
        [sys.executable, str(WORKER), *arguments],
        capture_output=True,
        text=True,
        env=os.environ
        | {"OMP_NUM_THREADS": "2", "PYTHONPATH": python_path(), "TORCH_CPP_LOG_LEVEL": "ERROR"},
    )
    rows = [json.loads(line) for line in worker.stdout.splitlines()]
    assert worker.returncode == 0, f"{rows[-1:]}: {worker.stderr[-1500:]}"
    found: dict[str, str] = {}
    tried: set[str] = set()
    for row in rows:
        found |= row.get("found", {})
        tried |= {name.split()[0] for name in row.get("tried", {})}
    return found, tried


NOT_VALID = {
    # Tiled offsets decrease. PyTorch does not check that, and segments then overlap.
    "aten._segment_reduce_backward.default",
}


def is_known(name: str) -> bool:
    base, _, overload = name.removeprefix("aten.").partition(".")
    traits = _C.replay_traits(f"aten::{base}", "" if overload == "default" else overload)
    return traits["thread_order"] or name in NOT_VALID


def test_no_other_op_with_indices_depends_on_the_order_of_threads() -> None:
    few = ("--samples", "3", "--calls", "1", "--repeat", "8", "--one-in", "4")
    found, tried = sweep("--indexed", *few)
    assert [name for name in found if not is_known(name)] == [], found
    assert found or len(os.sched_getaffinity(0)) == 1  # known ones differ if threads run at a time
    assert len(tried) > 30, tried


@pytest.mark.slow
def test_no_other_op_depends_on_the_order_of_threads() -> None:
    found, tried = sweep()
    assert [name for name in found if not is_known(name)] == [], found
    assert len(tried) > 400, tried


X = torch.randn(3000, 100, generator=torch.Generator().manual_seed(1))
ROWS = torch.arange(3000) % 7
PLACES = torch.arange(300000) % 97


def gradient_of_rows() -> torch.Tensor:
    leaf = X.clone().requires_grad_()
    (leaf[ROWS] * X).sum().backward()
    assert leaf.grad is not None
    return leaf.grad


OPS: dict[str, Callable[[], torch.Tensor]] = {
    "index_put with accumulate": lambda: torch.index_put(X, (ROWS,), X, accumulate=True),
    "index_put in place": lambda: X.clone().index_put_((ROWS,), X, accumulate=True),
    "unsafe_index_put": lambda: torch._unsafe_index_put(X, (ROWS,), X, accumulate=True),
    "put with accumulate": lambda: torch.put(X, PLACES, X.flatten(), accumulate=True),
    "put in place": lambda: X.clone().put_(PLACES, X.flatten()),
    "index_put, the last write remains": lambda: torch.index_put(X, (ROWS,), X),
    "index_copy, the last write remains": lambda: torch.index_copy(X, 0, ROWS, X),
    "index_copy in place": lambda: X.clone().index_copy_(0, ROWS, X),
    "gradient of rows": gradient_of_rows,
    "index_add": lambda: torch.index_add(X, 0, ROWS, X),
    "scatter_add": lambda: torch.scatter_add(X, 0, ROWS[:, None].expand_as(X), X),
}


@pytest.mark.parametrize("name", OPS)
def test_a_replay_gives_the_bits_of_the_first_run(name: str) -> None:
    with recoup.budget("256MiB", check_replays=True) as run:
        y = OPS[name]()
        first = y.clone()
        for _ in range(10):
            assert recoup.evict(y)
            assert torch.equal(y, first)
        assert run.stats().replays >= 10
    assert torch.get_num_threads() == 2


def test_a_mask_needs_no_single_thread() -> None:
    mask = X > 0
    with recoup.budget("256MiB") as run:
        y = X.clone()
        y[mask] = 1.0
        first = y.clone()
        assert recoup.evict(y) and torch.equal(y, first)
        assert run.stats().replays > 0
    expected = X.clone()
    expected[mask] = 1.0
    assert torch.equal(first, expected)


def test_indices_without_duplicates_give_the_bits_of_plain_pytorch() -> None:
    order = torch.randperm(3000, generator=torch.Generator().manual_seed(2))
    with recoup.budget("256MiB"):
        y = torch.index_put(X, (order,), X, accumulate=True)
    assert torch.equal(y, torch.index_put(X, (order,), X, accumulate=True))
