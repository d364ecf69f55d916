"""A trace of one length of inputs, scaled to a longer one, compared with recordings of that."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

import recoup
from recoup.offline.batch_size import largest_batch
from recoup.offline.scaled_trace import ScaledTrace
from recoup.offline.traces import Trace
from test_scaled_traces import adamw, record, sizes

BATCH, LENGTH = 13, 37
WIDTH, HEADS, WORDS = 64, 4, 96


class Attention(nn.Module):
    """With the matrix of attention in memory, and a mask that is made in each call; or fused."""

    def __init__(self, is_fused: bool) -> None:
        super().__init__()
        self.is_fused = is_fused
        self.enter, self.leave = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, inputs: Tensor) -> Tensor:
        batch, length, _ = inputs.shape
        entered = self.enter(inputs).view(batch, length, 3, HEADS, -1)
        query, key, value = entered.permute(2, 0, 3, 1, 4)
        if self.is_fused:
            mixed = scaled_dot_product_attention(query, key, value, is_causal=True)
        else:
            mask = torch.full((length, length), float("-inf")).triu(1)
            mixed = (query @ key.transpose(2, 3) * 0.25 + mask).softmax(-1) @ value
        return inputs + self.leave(mixed.transpose(1, 2).reshape(inputs.shape))


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.net = kind(WIDTH, WIDTH, 2, batch_first=True)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.net(inputs)[0]


class Pooled(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.mean(1)


class Halved(nn.Module):
    """Attention sees half of the positions."""

    def __init__(self) -> None:
        super().__init__()
        self.shorten = nn.Conv1d(WIDTH, WIDTH, 3, stride=2, padding=1)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.shorten(inputs.transpose(1, 2)).transpose(1, 2)


def layers(is_fused: bool) -> nn.Module:
    feed = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
    return nn.Sequential(Attention(is_fused), nn.LayerNorm(WIDTH), feed, Attention(is_fused))


def encoder(dropout: float) -> nn.Module:
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, dropout, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


NETS: dict[str, Callable[[], nn.Module]] = {
    "fused": lambda: layers(True),
    "with matrices": lambda: layers(False),
    "encoder": lambda: encoder(0.0),
    "encoder with dropout": lambda: encoder(0.1),
    "lstm": lambda: Recurrent(nn.LSTM),
    "gru": lambda: Recurrent(nn.GRU),
    "pooled": lambda: nn.Sequential(layers(False), Pooled()),
    "halved": lambda: nn.Sequential(Halved(), layers(False), Pooled()),
}


def train(name: str, length: int, autocast: bool = False, steps: int = 3) -> Callable[[int], None]:
    def program(batch: int) -> None:
        net = nn.Sequential(nn.Embedding(WORDS, WIDTH), NETS[name](), nn.Linear(WIDTH, WORDS))
        optimizer = adamw(net.parameters())
        for _ in range(steps):
            tokens = torch.randint(0, WORDS, (batch, length))
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                found = net(tokens).view(-1, WORDS)
                loss = cross_entropy(found, tokens.flatten()[: len(found)])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return program


def both(
    folder: Path,
    name: str,
    factor: int,
    length: int = LENGTH,
    seen: int | None = None,
    autocast: bool = False,
) -> tuple[Trace, Trace]:
    """A recording of longer inputs in twice the batch, and the same by scaling.

    seen: the length of the recorded inputs that attention sees.
    """
    path, longest = folder / "run.rtrace", factor * length
    trace = record(path, train(name, length, autocast), BATCH)
    lengths = (length, longest) if seen is None else (seen, longest * seen // length)
    scaled = ScaledTrace(trace, BATCH, lengths)
    want = record(path, train(name, longest, autocast), 2 * BATCH)
    return want, scaled.trace(2 * BATCH)


def ratio_of_peaks(both: tuple[Trace, Trace]) -> float:
    want, got = both
    return got.unbudgeted_peak_bytes() / want.unbudgeted_peak_bytes()


@pytest.mark.parametrize("factor", [2, 4])
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("name", ["fused", "with matrices", "encoder", "encoder with dropout"])
def test_scaling_a_prime_length_gives_all_sizes_of_transformers(
    name: str, autocast: bool, factor: int, tmp_path: Path
) -> None:
    want, got = both(tmp_path, name, factor, autocast=autocast)
    # Ops that do not wait for one another may change places in backward.
    assert sorted(sizes(got)) == sorted(sizes(want))
    assert got.unbudgeted_peak_bytes() == want.unbudgeted_peak_bytes()


@pytest.mark.parametrize("factor", [2, 4])
@pytest.mark.parametrize("name", ["lstm", "gru", "pooled"])
def test_scaling_a_prime_length_gives_the_peak_of_others(
    name: str, factor: int, tmp_path: Path
) -> None:
    """An LSTM's workspaces are not proportional."""
    ratio = ratio_of_peaks(both(tmp_path, name, factor))
    assert ratio == pytest.approx(1, abs=0.04 if name == "lstm" else 0.01)


def test_the_length_that_attention_sees_counts(tmp_path: Path) -> None:
    assert ratio_of_peaks(both(tmp_path, "halved", 4, seen=19)) == pytest.approx(1, abs=0.04)
    assert ratio_of_peaks(both(tmp_path, "halved", 4)) < 0.95


def test_another_length_than_a_prime_gives_at_least_the_peak(tmp_path: Path) -> None:
    """A length of 96 has factors in common with the width."""
    assert 1 < ratio_of_peaks(both(tmp_path, "fused", 2, length=96)) < 1.5


def test_costs_grow_with_the_length_where_sizes_do(tmp_path: Path) -> None:
    trace = record(tmp_path / "run.rtrace", train("with matrices", LENGTH), BATCH)
    longer = ScaledTrace(trace, BATCH, (LENGTH, 3 * LENGTH)).trace(BATCH)
    ratios: dict[str, set[int]] = {}
    for before, after in zip(trace.ops(), longer.ops(), strict=True):
        ratios.setdefault(before.name, set()).add(round(after.cost_ns / before.cost_ns))
    names = ("aten::gelu", "aten::_softmax", "aten::triu", "aten::addcdiv_")
    assert {name: ratios[name] for name in names} == {
        "aten::gelu": {3},
        "aten::_softmax": {9},
        "aten::triu": {9},
        "aten::addcdiv_": {1},
    }


def test_the_same_length_gives_the_same_trace(tmp_path: Path) -> None:
    trace = record(tmp_path / "run.rtrace", train("with matrices", 64), BATCH)
    same = ScaledTrace(trace, BATCH, (64, 64)).trace(BATCH)
    assert same.ops() == trace.ops()


def test_a_length_that_divides_the_width_is_refused(tmp_path: Path) -> None:
    trace = record(tmp_path / "run.rtrace", train("fused", 64), BATCH)
    with pytest.raises(ValueError, match=r"64, the length .* a prime length, such as 61"):
        ScaledTrace(trace, BATCH, (64, 128))


@pytest.mark.parametrize("name", ["fused", "with matrices", "lstm"])
def test_the_largest_batch_trains_with_the_longest_inputs(name: str, tmp_path: Path) -> None:
    """And so does that with its margin, but not three times the batch."""
    longest, budget = 101, "8MiB"
    recorded = record(tmp_path / "run.rtrace", train(name, LENGTH, steps=4), BATCH)
    found = largest_batch(recorded, batch=BATCH, budget=budget, lengths=(LENGTH, longest)).largest
    assert found.unbudgeted_peak_bytes > 8 << 20

    def trains(batch: int) -> bool:
        torch.manual_seed(0)
        options = recoup.Options(cost_model="bytes")
        try:
            with recoup.budget(budget, device="cpu", options=options):
                train(name, longest, steps=4)(batch)
        except recoup.OutOfBudgetError:
            return False
        return True

    assert trains(found.batch) and not trains(3 * found.batch)
    assert name == "lstm" or trains(found.larger_batch)  # an LSTM's workspaces differ
