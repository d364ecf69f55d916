"""CUDA graphs that are captured in a budget: their memory, streams, launches, and refusals."""

import contextlib
import gc
import warnings
from typing import Any

import torch
from torch import Tensor

import recoup
from gpu_checks_graphs import warm_up
from gpu_context import (
    KIB,
    MIB,
    assert_same,
    check,
    empty_cache,
    here,
    message,
    same,
    used_bytes,
    with_outside,
)
from recoup.bench.flat_options import split


def charged_bytes(run: recoup.Run) -> int:
    run._engine.reset_peak()
    return run.stats().peak_bytes


@check
def a_graph_owns_its_memory() -> None:
    """Until it is reset or dies, also if the program frees all of its tensors."""
    x = torch.ones(64 * KIB, device=here.device)
    for ending in ("reset", "death"):
        with recoup.budget(with_outside(16 * MIB), device=here.device) as run:
            (x.sin() * 2).sum()
            start = charged_bytes(run)
            graph: Any = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                y = x
                for _ in range(20):
                    y = y.sin()
                total = y.sum()
            del y
            assert charged_bytes(run) >= start + 2 * x.nbytes
            assert 2 * x.nbytes <= run.stats().graph_bytes <= charged_bytes(run)
            assert "of CUDA graphs" in run.report()
            others = [torch.full((64 * KIB,), 3.0, device=here.device) for _ in range(50)]
            graph.replay()
            assert all(bool((other == 3).all()) for other in others)
            expected = x
            for _ in range(20):
                expected = expected.sin()
            assert same(total, expected.sum())
            del others, expected
            if ending == "reset":
                graph.reset()
            del graph, total
            gc.collect()
            run.check()
            assert charged_bytes(run) == start
            assert run.stats().graph_bytes == 0


@check
def a_graph_keeps_workspaces() -> None:
    """A graph that was captured with a workspace of cuBLAS gets it when PyTorch frees it."""
    x = torch.ones(64, 64, device=here.device)
    with recoup.budget(with_outside(16 * MIB), device=here.device) as run:
        x @ x
        torch._C._cuda_clearCublasWorkspaces()
        start = charged_bytes(run)
        graph: Any = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = x @ x
        owned = charged_bytes(run)
        torch._C._cuda_clearCublasWorkspaces()
        assert charged_bytes(run) == owned
        graph.replay()
        assert bool((y == 64).all())
        del y
        graph.reset()
        run.check()
        assert charged_bytes(run) == start < owned - 2 * x.nbytes


@check
def memory_of_an_ended_scope_is_freed_after_a_capture() -> None:
    """The driver unmaps no memory within a capture. The scope's last tensor dies there."""
    for inside in (False, True):
        with recoup.budget(with_outside(8 * MIB), device=here.device):
            x = torch.ones(64 * KIB, device=here.device)
            warm_up(x.sin)
        before = used_bytes()
        budget = recoup.budget(with_outside(16 * MIB), device=here.device)
        with budget if inside else contextlib.nullcontext():
            graph: Any = torch.cuda.CUDAGraph()
            y = torch.ones(64 * KIB, device=here.device)
            with torch.cuda.graph(graph):
                del x
                gc.collect()
                result = y + 1
            y.fill_(4)
            graph.replay()
            assert result.tolist()[:2] == [5, 5]
            del result
            graph.reset()
        del y, graph
        gc.collect()
        empty_cache()
        assert used_bytes() < before


@check
def a_stream_joins_a_capture_after_a_use() -> None:
    """The warm-up's loss is alive, so autograd accumulates gradients on the warm-up's stream."""

    def program() -> list[Tensor]:
        model = torch.nn.Linear(64, 64).to(here.device)
        with torch.no_grad():
            for i, each in enumerate(model.parameters()):
                each.copy_(torch.arange(each.numel(), device=here.device).view_as(each) % (7 + i))
        x = torch.ones(32, 64, device=here.device)
        kept = []

        def step() -> Tensor:
            model.zero_grad(set_to_none=True)
            loss = model(x).square().mean()
            loss.backward()
            return loss

        warm_up(lambda: kept.append(step()))
        graph: Any = torch.cuda.CUDAGraph()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with torch.cuda.graph(graph):
                loss = step()
        results = []
        for i in range(3):
            x.fill_(i)
            graph.replay()
            results += [each.cpu() for each in (loss, *(p.grad for p in model.parameters()))]
        return results

    plain = program()
    with recoup.budget(with_outside(16 * MIB), device=here.device) as run:
        ours = program()
        run.check()
    assert_same(ours, plain)


@check
def memory_is_left_for_eager_ops() -> None:
    """A tensor that the program holds during a capture leaves its memory to later ops."""
    x = torch.ones(64 * KIB, device=here.device)
    with recoup.budget(with_outside(6 * MIB), device=here.device) as run:
        warm_up(x.sin)
        free = torch.empty(3 * MIB, dtype=torch.uint8, device=here.device)
        graph: Any = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            values = [x.sin() + i for i in range(16)]
            total = sum(value * value for value in values)
            del values
        del free
        assert run.stats().graph_bytes <= 3 * MIB
        graph.replay()
        others = [x + i for i in range(8)]
        graph.replay()
        assert all(same(other, x + i) for i, other in enumerate(others))
        assert same(total, sum((x.sin() + i) * (x.sin() + i) for i in range(16)))
        run.check()


@check
def every_launch_is_seen() -> None:
    """Of a graph from outside of the scope, and by any way to call it."""
    x = torch.ones(64 * KIB, device=here.device)

    def captured() -> tuple[Any, Tensor]:
        graph: Any = torch.cuda.CUDAGraph()
        bound = graph.replay
        with torch.cuda.graph(graph):
            result = x * 2
        return bound, result  # the method alone keeps the graph

    warm_up(lambda: x * 2)
    before, of_before = captured()
    with recoup.budget(with_outside(16 * MIB), device=here.device):
        inside, of_inside = captured()
        launches = [
            (before, of_before),
            (inside, of_inside),
            (lambda: torch.cuda.CUDAGraph.replay(inside.__self__), of_inside),
        ]
        for launch, result in launches:
            x.fill_(1)
            launch()
            kept = result + 1
            assert recoup.evict(kept)
            x.fill_(5)
            launch()
            assert kept.tolist()[:2] == [3, 3]
            assert result.tolist()[:2] == [10, 10]
    with recoup.budget(with_outside(16 * MIB), device=here.device):
        kept = of_inside + 1
        recoup.evict(kept)
        x.fill_(7)
        inside()
        assert kept.tolist()[:2] == [11, 11]
        assert of_inside.tolist()[:2] == [14, 14]


@check
def results_of_a_capture_that_do_not_fit() -> None:
    """They are evicted within the capture, and cannot all be brought back at its end."""
    x = torch.ones(256 * KIB, device=here.device)
    with recoup.budget(with_outside(16 * MIB), device=here.device) as run:
        warm_up(x.sin)
        graph: Any = torch.cuda.CUDAGraph()
        results: list[Tensor] = []

        def capture() -> None:
            with torch.cuda.graph(graph):
                results.extend(x.sin() * i for i in range(24))

        with torch.cuda.stream(torch.cuda.current_stream()):
            assert "CUDA graph" in message(recoup.OutOfBudgetError, capture)
        assert "ended with an error" in message(RuntimeError, graph.replay)
        del results[:]
        run.check()
        graph.reset()
        with torch.cuda.graph(graph):
            results.append(x.sin())
        graph.replay()
        assert same(results[0], x.sin())


@check
def captures_with_side_streams() -> None:
    side: Any = torch.cuda.Stream()
    x = torch.randn(64 * KIB, device=here.device)

    def forked() -> Tensor:
        main = torch.cuda.current_stream()
        y = start = x.sin()
        side.wait_stream(main)
        with torch.cuda.stream(side):
            z = start
            for _ in range(16):
                z = z.cos()
        for _ in range(16):
            y = y.sin()
        main.wait_stream(side)
        del start  # the side stream has read it
        return y + z

    warm_up(forked)
    plain = forked().cpu()
    with recoup.budget(with_outside(4 * MIB), device=here.device) as run:
        warm_up(forked)
        graph: Any = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = forked()
        for _ in range(3):
            graph.replay()
            assert same(result, plain)
        run.check()


@check
def refused_captures() -> None:
    def capture() -> None:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            pass

    def scope_within() -> None:
        with torch.cuda.graph(torch.cuda.CUDAGraph()), recoup.budget("1GiB", device=here.device):
            pass

    assert "cannot begin while a CUDA graph" in message(RuntimeError, scope_within)

    def refusal(**options: Any) -> str:
        options = split({"budget": with_outside(16 * MIB), "device": here.device, **options})
        with recoup.budget(**options), torch.cuda.stream(torch.cuda.current_stream()):
            return message(RuntimeError, capture)

    assert "with a spill tier" in refusal(spill="16MiB")
    assert "with check_replays=True" in refusal(check_replays=True)
    with recoup.budget(with_outside(16 * MIB), device=here.device) as run:
        graph: Any = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            x = torch.ones(8, device=here.device)
            text = message(RuntimeError, lambda: run.set_budget(32 * MIB))
            assert "while a CUDA graph is captured" in text, text
        graph.replay()
        assert x.tolist() == [1] * 8
        x.resize_(64 * KIB)
        assert "has got other memory" in message(RuntimeError, graph.replay)


@check
def compiled_graphs() -> None:
    """Inductor's graphs use memory pools, which are refused."""
    compiled = torch.compile(lambda x: x.sin() + 1, backend="cudagraphs")
    x = torch.ones(64, device=here.device)
    with recoup.budget(with_outside(16 * MIB), device=here.device), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            results = [compiled(x).cpu() for _ in range(3)]
        except RuntimeError as error:
            assert "memory pool" in str(error), error
        else:
            assert_same(results, [(x.sin() + 1).cpu()] * 3)
