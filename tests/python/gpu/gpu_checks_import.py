"""A spill tier on a GPU imports tensors from before the scope, by segments of the allocator."""

import gc
import os
import tempfile
import threading
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import recoup
from gpu_checks_refused import assert_simulated_alike
from gpu_checks_spill import steps
from gpu_context import MIB, assert_same, check, here, message, with_outside
from recoup.bench.flat_options import split

WIDTH = 1024
"""Weights of 4 MiB: the allocator puts five of them into a segment of 20 MiB."""


def trained(count: int = 2) -> tuple[nn.Sequential, torch.optim.Optimizer]:
    """A model and the state of its optimizer."""
    torch.manual_seed(0)
    layers = [layer for _ in range(8) for layer in (nn.Linear(WIDTH, WIDTH), nn.GELU())]
    model = nn.Sequential(*layers).to(here.device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, foreach=False)
    steps(model, optimizer, count)
    optimizer.zero_grad()
    return model, optimizer


def state_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    found = [value.detach().cpu() for value in model.parameters()]
    for state in optimizer.state.values():
        found += [value.cpu() for value in state.values()]
    return found


def on_device(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Parameters, and the state that the optimizer has on the device."""
    state = [each for state in optimizer.state.values() for each in state.values()]
    found = [each.detach() for each in model.parameters()]
    return found + [each for each in state if each.device.type == here.device.type]


def weight_bytes(model: nn.Module) -> int:
    return sum(parameter.nbytes for parameter in model.parameters())


def outside_bytes() -> int:
    return with_outside(0)


def measure_link() -> None:
    """Makes the measurement of the first scope with a tier, which waits for the whole device."""
    with recoup.budget(with_outside(8 * MIB), device=here.device, spill="512MiB"):
        pass


@check
def a_model_from_before_the_scope_is_trained() -> None:
    """In less memory than parameters, moments and gradients need; the device gains the memory."""
    model, optimizer = trained()
    plain = steps(model, optimizer) + state_of(model, optimizer)
    weights = weight_bytes(model)
    del model, optimizer
    gc.collect()
    before = outside_bytes()
    for room in (weights // 2, weights // 4):
        model, optimizer = trained()
        outside = outside_bytes()
        assert outside - before >= 3 * weights
        with recoup.budget(outside + room, device=here.device, spill="512MiB") as run:
            ours = steps(model, optimizer)
            run.check()
            stats = run.stats()
            optimizer.zero_grad()
        # All but the segments in which other tensors lie.
        assert stats.imported_bytes > 2 * weights, stats.imported_bytes
        assert stats.spills > 0 and stats.fetches > 0
        assert stats.peak_bytes <= outside + room
        assert stats.external_bytes - before < (outside - before) // 2, stats.external_bytes
        assert_same(ours + state_of(model, optimizer), plain)
        del model, optimizer, run
        gc.collect()


@check
def a_model_from_an_earlier_scope_is_trained() -> None:
    """The memory of the earlier scope goes to the pool of the next one."""
    model, optimizer = trained()
    plain: list[Tensor] = []
    for _ in range(3):
        plain += steps(model, optimizer, 1)
    plain += state_of(model, optimizer)
    weights = weight_bytes(model)
    del model, optimizer
    gc.collect()
    with recoup.budget(with_outside(6 * weights), device=here.device):
        model, optimizer = trained()
    ours: list[Tensor] = []
    for _ in range(3):  # a scope for each step
        outside = outside_bytes()
        assert outside >= 3 * weights, outside
        with recoup.budget(outside + weights // 2, device=here.device, spill="512MiB") as run:
            ours += steps(model, optimizer, 1)
            run.check()
            optimizer.zero_grad()
        assert run.stats().imported_bytes >= 3 * weights
    del run
    assert_same(ours + state_of(model, optimizer), plain)


@check
def without_a_tier_a_model_from_before_the_scope_stays() -> None:
    model, optimizer = trained()
    budget = outside_bytes() + weight_bytes(model) // 4

    def train() -> None:
        with recoup.budget(budget, device=here.device):
            steps(model, optimizer)

    text = message(recoup.OutOfBudgetError, train)
    assert "outside" in text, text


@check
def a_simulation_imports_as_the_run() -> None:
    """It decides the same, from a trace of the same model that was recorded in an ample budget."""
    common: dict[str, Any] = {"cost_model": "bytes", "planning": "wait", "spill": "512MiB"}
    imports = 0
    for policy in ("planned", "recoup", "lru"):
        for room in (20 * MIB, 40 * MIB):
            options = common | {"policy": policy}
            model, optimizer = trained()
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "run.rtrace")
                with recoup.budget(
                    with_outside(96 * MIB), device=here.device, trace=path, **split(options)
                ) as run:
                    steps(model, optimizer)
                    optimizer.zero_grad()
                assert run.stats().imports == 0
                trace = recoup.Trace.read(path)
            budget = outside_bytes() + room + 12345
            with recoup.budget(
                budget, device=here.device, profile="decisions", **split(options)
            ) as run:
                steps(model, optimizer)
                optimizer.zero_grad()
            assert_simulated_alike(run, trace, budget, options, f"{policy}, {room} bytes")
            imports += run.stats().imports
            del model, optimizer, run
            gc.collect()
    assert imports > 0


def not_imported(
    prepare: Callable[[nn.Sequential], Any], check_after: Callable[[Any], None]
) -> None:
    """Code that may know an address of each weight keeps the whole model outside."""
    model, _ = trained()
    addresses = [each.data_ptr() for each in model.parameters()]
    known = prepare(model)
    budget = outside_bytes() + 64 * MIB
    with recoup.budget(budget, device=here.device, spill="512MiB") as run:
        grown = [torch.randn(MIB, device=here.device) for _ in range(24)]
        del grown
        run.check()
    assert [each.data_ptr() for each in model.parameters()] == addresses
    check_after(known)


@check
def objects_with_addresses_keep_a_model_outside() -> None:
    """As arrays of CuPy, Numba or Warp over each weight do."""

    class Array:
        def __init__(self, tensor: Tensor) -> None:
            self.tensor = tensor
            self.address = tensor.data_ptr()

    def prepare(model: nn.Sequential) -> list[Array]:
        arrays = [Array(each.detach()) for each in model.parameters()]
        assert all(gc.is_tracked(each) for each in arrays)
        return arrays

    def check_after(arrays: list[Array]) -> None:
        assert all(each.tensor.data_ptr() == each.address for each in arrays)

    not_imported(prepare, check_after)


@check
def a_variable_of_a_function_keeps_its_segment_outside() -> None:
    """The other segments are imported."""
    model, optimizer = trained()
    known = model[0].weight.detach()
    address = known.data_ptr()
    weights = weight_bytes(model)
    budget = outside_bytes() + weights // 2
    with recoup.budget(budget, device=here.device, spill="512MiB") as run:
        steps(model, optimizer)
        run.check()
        stats = run.stats()
        optimizer.zero_grad()
    assert 0 < stats.imported_bytes < 3 * weights - known.nbytes
    assert model[0].weight.data_ptr() == known.data_ptr() == address


@check
def a_thread_that_starts_ends_imports() -> None:
    model, optimizer = trained()
    addresses = [each.data_ptr() for each in model.parameters()]
    budget = outside_bytes() + 2 * weight_bytes(model)
    with recoup.budget(budget, device=here.device, spill="512MiB") as run:
        thread = threading.Thread(target=lambda: None)
        thread.start()
        thread.join()
        steps(model, optimizer)
        run.check()
        optimizer.zero_grad()
    assert run.stats().imports == 0
    assert [each.data_ptr() for each in model.parameters()] == addresses


@check
def work_on_other_streams_ends_before_the_import() -> None:
    """A stream that the scope does not know still reads the weights when the scope begins."""
    model, optimizer = trained()
    weights = [each.detach() for each in model.parameters() if each.dim() == 2]
    expected = []
    for each in weights:
        total = torch.zeros_like(each, device="cpu")
        for _ in range(30):
            total.add_(each.cpu())
        expected.append(total)
    sums = [torch.zeros_like(each) for each in weights]
    measure_link()
    budget = outside_bytes() + weight_bytes(model) // 2  # waits for all streams
    side = torch.Stream(device=here.device)
    side.wait_stream(torch.accelerator.current_stream(here.device))
    with side:
        for total, weight in zip(sums, weights, strict=True):
            for _ in range(30):
                total.add_(weight)
    del weights, weight
    with recoup.budget(budget, device=here.device, spill="512MiB") as run:
        steps(model, optimizer)
        optimizer.zero_grad()
    assert run.stats().imports > 0
    torch.accelerator.synchronize(here.device)
    assert_same([each.cpu() for each in sums], expected)


@check
def writes_on_other_streams_end_before_the_import() -> None:
    """A stream that the scope does not know still writes all values from before it when another
    model's training imports them. The program waits for the stream afterwards."""
    model, optimizer = trained()
    values = on_device(model, optimizer)
    expected = [each.cpu() for each in values]
    measure_link()
    budget = outside_bytes() + weight_bytes(model) // 2  # waits for all streams
    side = torch.Stream(device=here.device)
    side.wait_stream(torch.accelerator.current_stream(here.device))
    with side, torch.no_grad():
        for _ in range(10):
            for value in values:
                value.add_(1)
    del values, value
    with recoup.budget(budget, device=here.device, spill="512MiB") as run:
        other, other_optimizer = trained(1)
        stats = run.stats()
        torch.accelerator.current_stream(here.device).wait_stream(side)
        del other, other_optimizer
    assert stats.imported_bytes >= weight_bytes(model), stats.imported_bytes
    for value in expected:
        for _ in range(10):
            value.add_(1)
    assert_same([each.cpu() for each in on_device(model, optimizer)], expected)


@check
def graphs_keep_everything_outside() -> None:
    """A CUDA graph has addresses of the weights."""
    model, _ = trained()
    x = torch.randn(32, WIDTH, device=here.device)
    out = torch.empty(32, WIDTH, device=here.device)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        out.copy_(model[0](x))
    graph.replay()
    torch.cuda.synchronize()
    plain = out.cpu()
    budget = outside_bytes() + 2 * weight_bytes(model)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with recoup.budget(budget, device=here.device, spill="512MiB") as run:
            [torch.randn(4 * MIB, device=here.device) for _ in range(12)]
            run.check()
    assert any("CUDA graph" in str(each.message) for each in caught)
    assert run.stats().imports == 0
    graph.replay()
    torch.cuda.synchronize()
    assert_same([out], [plain])


@check
def memory_that_no_tensor_shows_keeps_its_segment_outside() -> None:
    """It lies between the weights."""
    model, optimizer = trained()
    raw = []
    for layer in model[::4]:
        empty = torch.empty(0, device=here.device)
        size = layer.weight.nbytes
        layer.weight.data = empty  # frees the memory, which the next request gets
        raw.append(torch.UntypedStorage(size, device=here.device))
    del model, optimizer
    gc.collect()
    held = torch.nn.ParameterList(torch.randn(MIB, device=here.device) for _ in range(8))
    addresses = [each.data_ptr() for each in held]
    ends = [each.data_ptr() for each in raw]
    between = [any(abs(a - b) < 20 * MIB for b in ends) for a in addresses]
    assert any(between), "all weights are in segments of their own"
    with recoup.budget(outside_bytes() + 48 * MIB, device=here.device, spill="512MiB") as run:
        grown = [torch.randn(MIB, device=here.device) for _ in range(16)]
        del grown
        run.check()
    del raw
