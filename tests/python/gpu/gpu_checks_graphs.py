"""CUDA graphs that are captured in a budget: the bits, the memory, and what is refused."""

import gc
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

import recoup
from gpu_context import KIB, MIB, assert_same, chain, check, here, message, same, with_outside
from recoup.bench.flat_options import split
from recoup.bench.nets.net import Net
from recoup.bench.nets.tiny import net_named

STEPS = 8
Optimizer = Callable[[Any], Any]


def sgd(parameters: Any) -> Any:
    return torch.optim.SGD(parameters, 0.1, momentum=0.9)


def adamw(parameters: Any) -> Any:
    return torch.optim.AdamW(parameters, 1e-3, capturable=True, fused=True)


def warm_up(run: Callable[[], object], times: int = 3) -> None:
    """As PyTorch demands before a capture: on a stream of its own."""
    side: Any = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(times):
            run()
    torch.cuda.current_stream().wait_stream(side)


class Training:
    """A network whose steps are eager, or launches of one captured graph."""

    def __init__(self, net: Net, optimizer: Optimizer) -> None:
        torch.manual_seed(0)
        self.net = net
        self.model = net.make().to(here.device)
        self.optimizer = optimizer(self.model.parameters())
        self.chance = torch.Generator().manual_seed(3)
        self.batch = tuple(each.to(here.device) for each in net.batch(self.chance))
        self.results: list[Tensor] = []
        self.graph: Any = None
        torch.manual_seed(5)
        warm_up(self.eager)
        self.optimizer.zero_grad(set_to_none=True)

    def step(self) -> Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.net.loss(self.model, self.batch)
        loss.backward()
        self.optimizer.step()
        return loss

    def eager(self) -> None:
        self.next_batch()
        self.results.append(self.step().detach().cpu())

    def next_batch(self) -> None:
        for ours, new in zip(self.batch, self.net.batch(self.chance), strict=True):
            ours.copy_(new)

    def capture(self) -> None:
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.loss = self.step()

    def launch(self) -> None:
        self.next_batch()
        self.graph.replay()
        self.results.append(self.loss.detach().cpu())

    def state(self) -> list[Tensor]:
        tensors = [*self.results, *self.model.state_dict().values()]
        for of_parameter in self.optimizer.state.values():
            tensors += [each for each in of_parameter.values() if torch.is_tensor(each)]
        return [*(each.detach().cpu() for each in tensors), torch.cuda.get_rng_state()]


def trained_eagerly(make: Callable[[], Training]) -> list[Tensor]:
    training = make()
    for _ in range(STEPS):
        training.eager()
    return training.state()


def captured_peak(make: Callable[[], Training]) -> int:
    """The memory of a captured step that evicts nothing."""
    with recoup.budget(with_outside(96 * MIB), device=here.device) as run:
        make().capture()
    return run.stats().peak_bytes - run.stats().external_bytes


def chain_with(optimizer: Optimizer) -> Training:
    net = Net(
        "chain",
        lambda: chain(12),
        lambda chance: (torch.randn(512, 256, generator=chance),),
        lambda model, batch: model(batch[0]).square().mean(),
        (),
    )
    return Training(net, optimizer)


def check_captured(make: Callable[[], Training], fraction: float) -> None:
    plain = trained_eagerly(make)
    budget = with_outside(int(captured_peak(make) * fraction))
    with recoup.budget(budget, device=here.device) as run:
        training = make()
        before = run.stats()
        training.capture()
        within = run.stats()
        assert within.replays > before.replays
        for _ in range(STEPS):
            training.launch()
        run.check()
        ours = training.state()
        assert run.stats().replays == within.replays  # a launch decides nothing
    assert run.stats().peak_bytes <= run.stats().budget_bytes
    assert_same(ours, plain)


@check
def captured_steps_with_dropout() -> None:
    check_captured(lambda: chain_with(sgd), 0.75)


@check
def captured_steps_of_adamw() -> None:
    check_captured(lambda: chain_with(adamw), 0.8)


@check
def captured_steps_of_nets() -> None:
    """A kernel of BatchNorm that does not fit restores its statistics, and runs again."""
    for name, fraction in (("resnet", 0.5), ("resnet50", 0.75), ("char_gpt", 0.5), ("gpt2", 0.5)):
        check_captured(partial(Training, net_named(name), sgd), fraction)


@check
def eager_steps_between_launches() -> None:
    """No value of an eager step is recomputed from content that a launch has changed."""
    plain = trained_eagerly(lambda: chain_with(sgd))
    peak = captured_peak(lambda: chain_with(sgd))
    with recoup.budget(with_outside(int(peak * 1.45)), device=here.device) as run:
        training = chain_with(sgd)
        training.capture()
        replays = run.stats().replays
        kept = []
        for i in range(STEPS):
            if i % 2:
                training.eager()
            else:
                training.launch()
            of_weight = training.model[0][0].weight * 2
            assert recoup.evict(of_weight)
            kept.append((of_weight, training.model[0][0].weight.detach().cpu() * 2))
        run.check()
        for of_weight, expected in kept:
            assert same(of_weight, expected)
        training.optimizer.zero_grad(set_to_none=True)
        ours = training.state()
        assert run.stats().replays > replays
    assert_same(ours, plain)


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
def a_graph_outlives_its_scope() -> None:
    plain = trained_eagerly(lambda: chain_with(sgd))
    with recoup.budget(with_outside(48 * MIB), device=here.device):
        training = chain_with(sgd)
        training.capture()
        training.launch()
    for _ in range(STEPS - 1):
        training.launch()
    assert_same(training.state(), plain)
    training.graph.reset()
    del training.loss
    with recoup.budget(with_outside(48 * MIB), device=here.device):
        training.step()


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
def a_capture_that_does_not_fit() -> None:
    plain = trained_eagerly(lambda: chain_with(sgd))
    with recoup.budget(with_outside(40 * MIB), device=here.device) as run:
        training = chain_with(sgd)

        graph: Any = torch.cuda.CUDAGraph()

        def too_large() -> None:
            with torch.cuda.graph(graph):
                training.batch[0].sin()
                torch.empty(64 * MIB, device=here.device)

        with torch.cuda.stream(torch.cuda.current_stream()):
            assert "aten::empty" in message(recoup.OutOfBudgetError, too_large)
        graph.reset()
        gc.collect()
        run.check()
        for _ in range(STEPS):
            training.eager()
        ours = training.state()
    assert_same(ours, plain)


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
def graphed_callables() -> None:
    def program() -> list[Tensor]:
        model = chain(6)
        sample = torch.zeros(256, 256, device=here.device, requires_grad=True)
        torch.manual_seed(2)
        graphed = torch.cuda.make_graphed_callables(model, (sample,))
        results = []
        for i in range(4):
            x = torch.full((256, 256), float(i), device=here.device, requires_grad=True)
            loss = graphed(x).square().mean()
            loss.backward()
            results += [loss, x.grad, *(each.grad for each in model.parameters())]
            results = [each.detach().cpu() for each in results]
            model.zero_grad()
        return [*results, torch.cuda.get_rng_state()]

    plain = program()
    with recoup.budget(with_outside(32 * MIB), device=here.device) as run:
        ours = program()
        run.check()
    assert_same(ours, plain)


@check
def refused_captures() -> None:
    def capture() -> None:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            pass

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
