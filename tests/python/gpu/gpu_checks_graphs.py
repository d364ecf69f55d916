"""CUDA graphs that are captured in a budget: the bits, the memory, and what is refused."""

import gc
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

import recoup
from gpu_context import MIB, assert_same, chain, check, here, message, same, with_outside
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
