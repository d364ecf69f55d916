"""Ops that are unregistered: what they made, and what has their place next."""

import os
import subprocess
import sys

import pytest
import torch

import recoup
from recoup import _C


def library(schema: str, kernel: object, name: str = "recoup_gone") -> torch.library.Library:
    """A library of one op, which is unregistered by its _destroy."""
    made = torch.library.Library(name, "FRAGMENT")
    made.define(schema)
    made.impl(schema.split("(")[0], kernel, "CPU")
    return made


# The addresses of what is freed are used again, and its bytes are overwritten.
MANY = """
import torch
import recoup

for i in range(60):
    library = torch.library.Library("recoup_gone", "FRAGMENT")
    # One that writes its argument and one that does not, in turn.
    if i % 2:
        library.define(f"op{i}(Tensor x) -> Tensor")
        library.impl(f"op{i}", lambda x: x + 1, "CPU")
    else:
        library.define(f"op{i}(Tensor(a!) x) -> ()")
        library.impl(f"op{i}", lambda x: (x.add_(1), None)[1], "CPU")
    with recoup.budget("8MiB", small_leaf_bytes=0):
        x = torch.zeros(100).mul(2)
        result = getattr(torch.ops.recoup_gone, f"op{i}")(x)
        recoup.evict(x)
        assert float(x.sum()) == (0 if i % 2 else 100), i
        if i % 2:
            assert float(result.sum()) == 100, i
    del result, x
    library._destroy()
with recoup.budget("8MiB"):
    torch.ones(10).add(1)
recoup.allow_replay("recoup_gone::op0")
print("done")
"""


def test_another_op_may_have_the_place_of_one_that_went() -> None:
    run = subprocess.run(
        [sys.executable, "-c", MANY],
        env=os.environ | {"MALLOC_PERTURB_": "165", "PYTHONMALLOC": "malloc"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == "done\n"


def test_what_it_made_cannot_be_brought_back_and_the_error_says_so() -> None:
    recoup.allow_replay("recoup_gone::twice")
    made = library("twice(Tensor x) -> Tensor", lambda x: x * 2)
    with recoup.budget("8MiB", small_leaf_bytes=0):
        x = torch.linspace(0, 1, 1000)
        y = torch.ops.recoup_gone.twice(x)
        kept = torch.ops.recoup_gone.twice(y)
        assert recoup.evict(y)
        made._destroy()
        with pytest.raises(RuntimeError, match="recoup_gone::twice made cannot be brought back"):
            y.sum()
        assert torch.equal(kept, torch.linspace(0, 1, 1000) * 4)
        del y


def test_one_that_is_registered_again_is_looked_at_again() -> None:
    first = library("again(Tensor x) -> Tensor", lambda x: x * 2)
    assert not _C.replay_traits("recoup_gone::again", "")["random"]
    first._destroy()
    made = torch.library.Library("recoup_gone", "FRAGMENT")
    made.define("again(Tensor x) -> Tensor", tags=(torch.Tag.nondeterministic_seeded,))
    assert _C.replay_traits("recoup_gone::again", "")["random"]
    made._destroy()
