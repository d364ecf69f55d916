"""Ops that are unregistered: what they made, and what has their place next."""

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


def test_what_it_made_cannot_be_brought_back_and_the_error_says_so() -> None:
    recoup.allow_replay("recoup_gone::twice")
    made = library("twice(Tensor x) -> Tensor", lambda x: x * 2)
    with recoup.budget("8MiB", small_result_bytes=0):
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
