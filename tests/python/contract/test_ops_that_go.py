"""Ops that are unregistered: values that they made, and ops that are registered in their place."""

import pytest
import torch

import recoup
from recoup import _C


def library(schema: str, kernel: object, name: str = "recoup_gone") -> torch.library.Library:
    """A library with one op, which its _destroy unregisters."""
    made = torch.library.Library(name, "FRAGMENT")
    made.define(schema)
    made.impl(schema.split("(")[0], kernel, "CPU")
    return made


def test_a_replay_of_an_unregistered_op_is_an_error() -> None:
    recoup.allow_replay("recoup_gone::twice")
    made = library("twice(Tensor x) -> Tensor", lambda x: x * 2)
    with recoup.budget("8MiB", options=recoup.Options(small_result_bytes=0)):
        x = torch.linspace(0, 1, 1000)
        y = torch.ops.recoup_gone.twice(x)
        kept = torch.ops.recoup_gone.twice(y)
        assert recoup.evict(y)
        made._destroy()
        with pytest.raises(RuntimeError, match="recoup_gone::twice computed cannot be restored"):
            y.sum()
        assert torch.equal(kept, torch.linspace(0, 1, 1000) * 4)
        del y


def test_the_traits_of_an_op_are_read_again_when_it_is_registered_again() -> None:
    first = library("again(Tensor x) -> Tensor", lambda x: x * 2)
    assert not _C.replay_traits("recoup_gone::again", "")["random"]
    first._destroy()
    made = torch.library.Library("recoup_gone", "FRAGMENT")
    made.define("again(Tensor x) -> Tensor", tags=(torch.Tag.nondeterministic_seeded,))
    assert _C.replay_traits("recoup_gone::again", "")["random"]
    made._destroy()
