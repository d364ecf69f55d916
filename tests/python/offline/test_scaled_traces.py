"""A trace of one batch size, scaled to other sizes, compared with recordings of those sizes."""

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import recoup
from recoup.offline.batch_size import LargestBatch, largest_batch
from recoup.offline.margins import margin_of
from recoup.offline.scaled_trace import ScaledTrace
from recoup.offline.suggestions import Predictor
from recoup.offline.traces import Trace

Program = Callable[[int], object]
HUGE = 1 << 33


def mlp() -> nn.Module:
    blocks = [each for _ in range(4) for each in (nn.Linear(64, 64), nn.ReLU(), nn.LayerNorm(64))]
    return nn.Sequential(*blocks, nn.Linear(64, 10))


def convnet() -> nn.Module:
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 16), (16, 32)):
        layers += [nn.Conv2d(inputs, outputs, 3, stride=2), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(96, 32)
        self.places = nn.Parameter(torch.randn(24, 32))
        blocks = [nn.TransformerEncoderLayer(32, 4, 64, batch_first=True) for _ in range(2)]
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(32, 96)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.blocks(self.embed(tokens) + self.places)).flatten(0, 1)


def adamw(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters)


def adamw_foreach(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, foreach=True)


def momentum(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01)


def train(
    name: str,
    make_optimizer: Callable[..., torch.optim.Optimizer] = adamw,
    autocast: bool = False,
) -> Program:
    def program(batch: int) -> None:
        net = {"mlp": mlp, "convnet": convnet, "transformer": Transformer}[name]()
        optimizer = make_optimizer(net.parameters())
        for _ in range(3):
            if name == "transformer":
                data, labels = torch.randint(0, 96, (batch, 24)), torch.randint(0, 96, (batch, 24))
            else:
                shape = (64,) if name == "mlp" else (3, 32, 32)
                data, labels = torch.randn(batch, *shape), torch.randint(0, 10, (batch,))
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                loss = cross_entropy(net(data), labels.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return program


def of_a_data_set(batch: int) -> None:
    data = torch.randn(512, 64)
    data = (data - data.mean(0)) / data.std(0)
    net = mlp()
    optimizer = adamw(net.parameters())
    for step in range(3):
        net(data[step * batch : (step + 1) * batch]).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)


def of_frozen_layers(batch: int) -> None:
    net = mlp().requires_grad_(False)
    down, up = nn.Parameter(torch.randn(64, 4)), nn.Parameter(torch.randn(4, 64))
    optimizer = adamw([down, up])
    for _ in range(3):
        data = torch.randn(batch, 64)
        net(data + data @ down @ up).square().mean().backward()
        nn.utils.clip_grad_norm_([down, up], 1.0)
        optimizer.step()
        optimizer.zero_grad()


def record(path: Path, program: Program, batch: int) -> Trace:
    torch.manual_seed(0)
    with recoup.budget(HUGE, device="cpu", trace=path, options=recoup.Options(cost_model="bytes")):
        program(batch)
    return Trace.read(path)


def sizes(trace: Trace) -> list[tuple[str, list[int]]]:
    return [(op.name, op.fresh_bytes) for op in trace.ops()]


PROGRAMS = {
    "mlp": train("mlp"),
    "mlp foreach": train("mlp", adamw_foreach),
    "convnet": train("convnet"),
    "convnet momentum": train("convnet", momentum),
    "transformer": train("transformer"),
    "transformer foreach": train("transformer", adamw_foreach),
    "bfloat16": train("transformer", autocast=True),
    "data set": of_a_data_set,
    "frozen layers": of_frozen_layers,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_scaling_a_prime_batch_gives_all_sizes_exactly(name: str, tmp_path: Path) -> None:
    program, path = PROGRAMS[name], tmp_path / "run.rtrace"
    scaled = ScaledTrace(record(path, program, 13), 13)
    for batch in (26, 52):
        want, got = record(path, program, batch), scaled.trace(batch)
        assert sizes(got) == sizes(want)
        assert got.unbudgeted_peak_bytes() == want.unbudgeted_peak_bytes()


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("batch", [8, 64])  # 64 is the width of the nets
def test_scaling_any_batch_gives_the_peak(name: str, batch: int, tmp_path: Path) -> None:
    """Within 1 %: in a batch of 8, 16 channels are mistaken for 2 values of each image."""
    program, path = PROGRAMS[name], tmp_path / "run.rtrace"
    scaled = ScaledTrace(record(path, program, batch), batch)
    want, got = record(path, program, 2 * batch), scaled.trace(2 * batch)
    peak = want.unbudgeted_peak_bytes()
    assert got.unbudgeted_peak_bytes() == pytest.approx(peak, rel=0.01)


def test_scaling_to_a_smaller_batch(tmp_path: Path) -> None:
    path, program = tmp_path / "run.rtrace", PROGRAMS["transformer"]
    scaled = ScaledTrace(record(path, program, 26), 26)
    assert sizes(scaled.trace(13)) == sizes(record(path, program, 13))


def test_scaling_to_the_same_batch_gives_the_same_trace(tmp_path: Path) -> None:
    trace = record(tmp_path / "run.rtrace", PROGRAMS["convnet"], 8)
    same = ScaledTrace(trace, 8).trace(8)
    assert same.ops() == trace.ops()
    budget = trace.unbudgeted_peak_bytes() * 6 // 10
    want, got = (
        one.simulate(budget, recoup.SimulationOptions(plan_ahead=False), decisions=True)
        for one in (trace, same)
    )
    assert got.decisions == want.decisions != []


def test_costs_grow_with_the_batch_where_sizes_do(tmp_path: Path) -> None:
    trace = record(tmp_path / "run.rtrace", PROGRAMS["mlp"], 13)
    tripled = ScaledTrace(trace, 13).trace(39)
    ratios = {
        name: {after.cost_ns / before.cost_ns for before, after in zip(*both, strict=True)}
        for name in ("aten::relu", "aten::native_layer_norm", "aten::addcdiv_", "aten::sqrt")
        if (both := [[op for op in one.ops() if op.name == name] for one in (trace, tripled)])
    }
    assert ratios == {
        "aten::relu": {3.0},
        "aten::native_layer_norm": {3.0},
        "aten::addcdiv_": {1.0},
        "aten::sqrt": {1.0},
    }


# ---- the largest batch ----


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    path = tmp_path_factory.mktemp("traces") / "run.rtrace"
    return record(path, PROGRAMS["mlp"], 13)


@pytest.fixture(scope="module")
def found(recorded: Trace) -> LargestBatch:
    return largest_batch(recorded, batch=13, budget="700KiB", max_time_ratio=1.5)


def test_the_largest_batch_fits_and_the_next_does_not(recorded: Trace, found: LargestBatch) -> None:
    largest, above = found.largest, found.smallest_too_large
    assert largest.batch > 13 and largest.prediction.holds
    assert largest.prediction.time_ratio is not None and largest.prediction.time_ratio <= 1.5
    assert above is not None and not above.prediction.holds
    assert 1 <= above.batch - largest.batch <= max(1, largest.batch // 100)
    # The figure is the peak of the scaled trace, which does not fit without evictions.
    scaled = ScaledTrace(recorded, 13).trace(largest.batch)
    assert Predictor(scaled).peak_bytes == largest.unbudgeted_peak_bytes > 700 << 10


def test_the_time_of_a_sample(recorded: Trace, found: LargestBatch) -> None:
    plain = Predictor(recorded).step_ns / 13
    scaled = Predictor(ScaledTrace(recorded, 13).trace(found.largest.batch))
    ratio = found.largest.prediction.time_ratio
    assert ratio is not None
    assert found.largest.sample_time_ratio == pytest.approx(
        ratio * scaled.step_ns / found.largest.batch / plain
    )


def test_the_largest_batch_may_be_smaller_than_the_recorded_one(recorded: Trace) -> None:
    peak = Predictor(recorded).peak_bytes
    found = largest_batch(recorded, batch=13, budget=f"{peak * 97 // 100}B", max_time_ratio=1.01)
    assert 1 <= found.largest.batch < 13


def test_no_batch_fits(recorded: Trace) -> None:
    with pytest.raises(
        ValueError, match=r"even a batch of 1 does not fit in 50KiB: .*out of budget"
    ):
        largest_batch(recorded, batch=13, budget="50KiB")


def test_the_largest_batch_trains_in_its_budget(found: LargestBatch) -> None:
    """Trains live in the budget for which one recording of another batch was scaled."""
    torch.manual_seed(0)
    with recoup.budget("700KiB", device="cpu", options=recoup.Options(cost_model="bytes")) as run:
        PROGRAMS["mlp"](found.largest.batch)
        assert run.stats().replays > 0
        assert run.stats().peak_bytes <= 700 << 10


LENGTHS = (60, 54, 23, 41, 64, 64, 20, 64)


def varying(steps: int) -> Program:
    """Inputs of varying lengths; the longest come after the first four steps."""

    def program(batch: int) -> None:
        torch.manual_seed(0)
        blocks = [
            each for _ in range(4) for each in (nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32))
        ]
        net = nn.Sequential(nn.Embedding(500, 32), *blocks, nn.Linear(32, 500))
        optimizer = adamw(net.parameters())
        for length in LENGTHS[:steps]:
            tokens = torch.randint(0, 500, (batch, length))
            loss = cross_entropy(net(tokens).flatten(0, 1), tokens.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return program


def test_the_margin_is_enough_for_longer_inputs(tmp_path: Path) -> None:
    recorded = record(tmp_path / "run.rtrace", varying(4), 7)
    found = largest_batch(recorded, batch=7, budget="4MiB", max_time_ratio=4)
    largest = found.largest
    assert largest.margin.spread > 0.2 and largest.larger_batch > 1.35 * largest.batch

    def trains(batch: int) -> bool:
        options = recoup.Options(cost_model="bytes")
        try:
            with recoup.budget("4MiB", device="cpu", options=options):
                varying(len(LENGTHS))(batch)
        except recoup.OutOfBudgetError:
            return False
        return True

    assert trains(largest.batch)
    assert not trains(3 * largest.batch)  # the margin is not much too large


def test_the_first_step_counts_with_the_state_that_it_creates(tmp_path: Path) -> None:
    def program(batch: int) -> None:
        net = nn.Linear(256, 256)
        optimizer = adamw(net.parameters())
        for size in (4 * batch, batch, batch, batch):
            net(torch.ones(size, 256)).tanh().square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

    trace = record(tmp_path / "run.rtrace", program, 128)
    first = trace.step(0).unbudgeted_peak_bytes()
    later = trace.step(1).unbudgeted_peak_bytes()
    spread = margin_of(trace, whole_run=False).spread
    state_bytes = 2 * 256 * 257 * 4
    assert spread == pytest.approx((first + state_bytes) / later - 1, rel=0.1)
    assert margin_of(trace, whole_run=True).spread == 0
