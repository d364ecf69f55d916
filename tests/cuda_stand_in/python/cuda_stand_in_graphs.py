"""Checks of the stand-in's CUDA graphs."""

from typing import Any

import recoup_cuda_stand_in as stand_in
import torch
from cuda_stand_in_check import check


@check
def a_graph_is_replayed() -> None:
    x = torch.zeros(1000, device="cuda")
    x + 1
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = (x + 1) * 2
    for value in (3, 5):
        x.fill_(value)
        graph.replay()
        assert y.tolist() == [2 * value + 2] * 1000
    side: Any = torch.cuda.Stream()
    graph.replay()
    with torch.cuda.stream(side):
        graph.replay()  # no event orders it after the previous replay
    torch.cuda.synchronize()
    assert stand_in.races() > 0


def forked(side: Any, graph: Any, x: torch.Tensor, joins: str) -> torch.Tensor:
    """Captures y = 2 * x + 1 whose product is computed on the stream `side`.

    joins: before the sum (`early`), after it (`late`), or `never`.
    """
    y = torch.zeros_like(x)
    with torch.cuda.graph(graph):
        main = torch.cuda.current_stream()
        side.wait_stream(main)
        with torch.cuda.stream(side):
            torch.mul(x, 2, out=y)
        if joins == "early":
            main.wait_stream(side)
        y.add_(1)
        if joins == "late":
            main.wait_stream(side)
    return y


@check
def a_graph_has_streams() -> None:
    x = torch.zeros(1000, device="cuda")
    torch.mul(x, 2).add_(1)
    side: Any = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    y = forked(side, graph, x, "early")
    for value in (3, 5):
        x.fill_(value)
        graph.replay()
        assert y.tolist() == [2 * value + 1] * 1000
    assert stand_in.races() == 0
    other = torch.cuda.CUDAGraph()
    y = forked(side, other, x, "late")
    assert stand_in.races() == 0
    other.replay()
    torch.cuda.synchronize()
    assert stand_in.races() > 0


@check
def a_capture_that_is_not_joined_fails() -> None:
    x = torch.zeros(1000, device="cuda")
    torch.mul(x, 2).add_(1)
    try:
        forked(torch.cuda.Stream(), torch.cuda.CUDAGraph(), x, "never")
    except RuntimeError as error:
        assert "unjoined" in str(error), error
    else:
        raise AssertionError("no error")


@check
def a_graph_draws_as_an_eager_program() -> None:
    x = torch.ones(1000, device="cuda")

    def drawn() -> list[torch.Tensor]:
        return [torch.dropout(x, 0.5, True), torch.rand_like(x)]

    drawn()
    torch.manual_seed(7)
    expected = [each.cpu() for _ in range(3) for each in drawn()]
    state = torch.cuda.get_rng_state()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = drawn()
    torch.manual_seed(7)
    found = []
    for _ in range(3):
        graph.replay()
        found += [each.cpu() for each in captured]
    assert all(map(torch.equal, found, expected))
    assert not torch.equal(found[0], found[2])
    assert torch.equal(state, torch.cuda.get_rng_state())
    assert stand_in.races() == 0
