"""Ordinary lines of code keep the savings: programs with them train in half of their memory.

Each program was found in public code, or after a public report. Its sibling without the line has
always trained in this budget.
"""

import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import recoup

Layer = Callable[[Tensor, Tensor], Tensor]
WIDTH, ROWS, LAYERS = 128, 512, 12
pytestmark = pytest.mark.usefixtures("one_and_two_threads")
OPTIONS = recoup.Options(cost_model="bytes")


def slice_becomes_number(y: Tensor, p: Tensor) -> Tensor:
    y = y @ p
    y[:, 1:3] = 0
    return torch.sigmoid(y) * y


def columns_become_number(y: Tensor, p: Tensor) -> Tensor:
    y = y @ p
    y[:, [1, 2]] = 0
    return torch.sigmoid(y) * y


def rows_by_index(y: Tensor, p: Tensor) -> Tensor:
    order = torch.arange(ROWS) * 7 % (ROWS // 2)
    return torch.tanh(y[order] @ p)


def rotated_into_empty(y: Tensor, p: Tensor) -> Tensor:
    y = y @ p
    rotated = torch.empty_like(y)
    rotated[..., 0::2] = -y[..., 1::2]
    rotated[..., 1::2] = y[..., 0::2]
    return torch.tanh(rotated) * 1.5


def out_of_empty(y: Tensor, p: Tensor) -> Tensor:
    y = y @ p
    with torch.no_grad():
        mask = torch.gt(y, 0, out=torch.empty(y.shape, dtype=torch.bool))
        scale = torch.mul(mask, 0.5, out=torch.empty(y.shape))
    return torch.tanh(y * scale)


def random_slope(y: Tensor, p: Tensor) -> Tensor:
    return torch.rrelu(y @ p, training=True)


def graph(layout: torch.layout) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    edges = torch.rand(ROWS, ROWS, generator=generator)
    edges = torch.where(edges < 0.01, edges, 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # compressed layouts are beta
        return edges.to_sparse(layout=layout)


def neighbors(layout: torch.layout) -> Layer:
    edges = graph(layout)
    return lambda y, p: torch.sigmoid(edges @ y) @ p


def sparse_inside(y: Tensor, p: Tensor) -> Tensor:
    edges = torch.eye(ROWS).to_sparse() * 2.0
    return torch.tanh(torch.sparse.mm(edges, y) @ p)


PROGRAMS: dict[str, Layer] = {
    "a slice becomes a number": slice_becomes_number,
    "columns become a number": columns_become_number,
    "rows by index": rows_by_index,
    "empty filled by slices": rotated_into_empty,
    "out=empty": out_of_empty,
    "rrelu": random_slope,
    "sparse COO": neighbors(torch.sparse_coo),
    "sparse CSR": neighbors(torch.sparse_csr),
    "sparse inside": sparse_inside,
}


def train(layer: Layer) -> list[Tensor]:
    torch.manual_seed(0)
    parameters = [nn.Parameter(torch.randn(WIDTH, WIDTH) / 11) for _ in range(LAYERS)]
    y = torch.randn(ROWS, WIDTH)
    for parameter in parameters:
        y = layer(y, parameter)
    y.square().mean().backward()
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


def peak_of(layer: Layer) -> int:
    with recoup.budget("1GiB") as run:
        train(layer)
    return run.stats().peak_bytes


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_trains_in_half_of_its_memory(name: str) -> None:
    layer = PROGRAMS[name]
    plain = train(layer)
    with recoup.budget(peak_of(layer) // 2 + (1 << 20)) as run:
        small = train(layer)
    assert run.stats().replays > 0
    assert len(small) == LAYERS
    assert all(torch.equal(a, b) for a, b in zip(plain, small, strict=True))


def test_saved_tensors_that_may_change_keep_the_savings() -> None:
    def layer(y: Tensor, p: Tensor) -> Tensor:
        return nn.functional.gelu(y @ p)

    def guarded() -> list[Tensor]:
        with torch.autograd.graph.allow_mutation_on_saved_tensors():
            return train(layer)

    plain = train(layer)
    with recoup.budget(peak_of(layer) // 2 + (1 << 20)) as run:
        small = guarded()
    assert run.stats().replays > 0
    assert all(torch.equal(a, b) for a, b in zip(plain, small, strict=True))


def train_with_a_look(look: Callable[[Tensor], object]) -> list[Tensor]:
    torch.manual_seed(0)
    net = nn.Sequential(*[nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(LAYERS)])
    x = torch.randn(ROWS, WIDTH)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
        for parameter in net.parameters():
            look(parameter.detach())
    return [parameter.detach() for parameter in net.parameters()]


def test_a_look_through_numpy_keeps_the_savings() -> None:
    def look(p: Tensor) -> object:
        return p.numpy().max()

    plain = train_with_a_look(look)
    with recoup.budget("1GiB") as run:
        train_with_a_look(look)
    with recoup.budget(run.stats().peak_bytes * 45 // 100) as run:
        small = train_with_a_look(look)
    assert run.stats().replays > 0
    assert all(torch.equal(a, b) for a, b in zip(plain, small, strict=True))


def test_what_an_array_shows_is_not_read_by_replays_until_the_array_is_gone() -> None:
    with recoup.budget("64MiB"):
        w, x = torch.randn(500, 100), torch.randn(100, 500)
        array = w.numpy()
        part = array[10:20]
        del array  # the part keeps it
        y = w @ x
        part[:] = 2.0
        assert not recoup.evict(y)
        again = w.numpy()
        del part
        assert not recoup.evict(w @ x)
        again[:] = 3.0
        del again
        z = w + 1
        assert recoup.evict(z) and (z == 4).all()
        w.add_(1)
        assert (z == 4).all() and (w == 4).all()


def test_an_address_that_was_taken_otherwise_outlives_the_array() -> None:
    with recoup.budget("64MiB"):
        w = torch.randn(500, 100)
        array = w.numpy()
        other = torch.from_numpy(array)
        del array
        other.fill_(1.0)
        w.data_ptr()
        del other
        assert not recoup.evict(w * 2)


def test_a_simulation_ends_an_escape_where_the_run_did(tmp_path: Path) -> None:
    file = tmp_path / "looks.rtrace"
    with recoup.trace(file) as run:
        train_with_a_look(lambda p: p.numpy().max())
    trace = recoup.Trace.read(file)
    budget = run.stats().peak_bytes // 2
    with recoup.budget(budget, policy="recoup", options=OPTIONS) as live:
        train_with_a_look(lambda p: p.numpy().max())
    simulated = trace.simulate(budget, recoup.SimulationOptions(policy="recoup", **vars(OPTIONS)))
    assert simulated.stats.replays == live.stats().replays > 0
    assert simulated.stats.evictions == live.stats().evictions


def test_reading_uninitialized_memory_repeats() -> None:
    with recoup.budget("64MiB", check_replays=True):
        y = torch.empty(1000, 100)
        y[:, 0] = 1.0
        z = y * 2
        first = z.clone()
        for _ in range(3):
            assert recoup.evict(z) and recoup.evict(y)
            assert torch.equal(z, first)


def test_a_pointer_into_uninitialized_memory_defines_it() -> None:
    with recoup.budget("64MiB"):
        y = torch.empty(1000, 100)
        y.numpy()[:] = 3.0
        z = torch.empty(1000, 100)
        torch.from_dlpack(z).fill_(4.0)
        y[:, 0] = 1.0
        z[:, 0] = 1.0
        assert y.sum().item() == 1000 * (1 + 99 * 3)
        assert z.sum().item() == 1000 * (1 + 99 * 4)


def test_memory_that_a_pinned_pointer_has_defined_is_not_set_to_zero() -> None:
    with recoup.budget("64MiB"):
        y = torch.empty(1000, 100)
        with recoup.pin(y):
            y.untyped_storage().fill_(0)
            y.data_ptr()
            y.numpy()[:] = 5.0
        assert (y * 1).sum().item() == 500000


def from_a_file(x: Tensor, tmp_path: Path) -> Tensor:
    x.numpy().tofile(tmp_path / "numbers")
    return torch.from_file(str(tmp_path / "numbers"), size=x.numel(), dtype=x.dtype)


@torch.library.custom_op("recoup_savings::filled", mutates_args=())
def filled(x: Tensor) -> Tensor:
    result = torch.empty_like(x)
    result.numpy()[:] = x.numpy()
    return result


# Calls of ops that run once, as no replay gives their bits. Their results are defined.
ONCE: dict[str, Callable[[Tensor, Path], Tensor]] = {
    "least squares": lambda x, _: torch.linalg.lstsq(x, x[:, :2], driver="gels").solution,
    "mapped file": from_a_file,
    "custom op": lambda x, _: filled(x),
    "opaque op": lambda x, _: torch.ops.aten._nested_tensor_from_mask(
        x[None], torch.ones(1, len(x), dtype=torch.bool), False
    ).values(),
    "resized": lambda x, _: torch.empty(0).set_(x.clone().untyped_storage()),
}


@pytest.mark.parametrize("name", ONCE)
@pytest.mark.parametrize(
    "read", [torch.clone, lambda y: y[..., :1].zero_(), lambda y: torch.add(y, 1, out=y)]
)
def test_the_results_of_ops_that_run_once_are_defined(
    name: str, read: Callable[[Tensor], Tensor], tmp_path: Path
) -> None:
    def program() -> list[Tensor]:
        torch.manual_seed(0)
        y = ONCE[name](torch.randn(200, 100), tmp_path)
        return [read(y).clone(), y.clone()]

    plain = program()
    with recoup.budget("64MiB"):
        found = program()
    assert all(map(torch.equal, found, plain))


# ---- memory that PyTorch fills ----

FILLED: dict[str, Callable[[], Tensor]] = {
    "empty": lambda: torch.empty(1000),
    "integers": lambda: torch.empty(1000, dtype=torch.int32),
    "bool": lambda: torch.empty(1000, dtype=torch.bool),
    "strided": lambda: torch.empty_strided((10, 100), (100, 1)),
    "permuted": lambda: torch.empty_permuted((2, 3, 500), (0, 1, 2)),
    "class": lambda: torch.Tensor(1000),
    "new": lambda: torch.zeros(1).new_empty(1000),
    "like": lambda: torch.empty_like(torch.zeros(1000, dtype=torch.int32)),
}


@pytest.mark.parametrize("name", FILLED)
@pytest.mark.parametrize("options", [{}, {"evict_after_op": True, "small_result_bytes": 0}])
def test_deterministic_algorithms_fill_new_memory(name: str, options: dict[str, object]) -> None:
    torch.use_deterministic_algorithms(True)
    try:
        plain = FILLED[name]().clone()
        with recoup.budget("64MiB", options=recoup.Options(**options)):
            made = FILLED[name]()
            copy = made.clone()
            made[0:1] = 0
            found = made.clone()
    finally:
        torch.use_deterministic_algorithms(False)
    torch.testing.assert_close(copy, plain, rtol=0, atol=0, equal_nan=True)
    plain[0:1] = 0
    torch.testing.assert_close(found, plain, rtol=0, atol=0, equal_nan=True)
