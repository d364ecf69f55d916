"""Near the least budget, a program also fits in each larger budget, and gives the same bits.

Costs are in bytes, so that every run makes the same decisions.
"""

import pytest
import torch

import recoup
from recoup.bench.nets.tiny import net_named
from train import HUGE, assert_bits_equal, train, variant_named

STEPS = 2
FLOOR_PERCENT = {"char_gpt": 27, "resnet": 40}  # of the unbudgeted peak


@pytest.mark.parametrize("name", FLOOR_PERCENT)
def test_each_budget_above_the_least_fits(name: str) -> None:
    net, variant = net_named(name), variant_named("plain")
    options = {"policy": "dtr", "cost_model": "bytes"}
    plain = train(net, variant, STEPS)
    peak = train(net, variant, STEPS, HUGE, **options).stats.peak_bytes
    restarts = 0
    for percent in range(FLOOR_PERCENT[name], FLOOR_PERCENT[name] + 12):
        tight = train(net, variant, STEPS, peak * percent // 100, **options)
        assert_bits_equal(tight, plain)
        restarts += tight.stats.restarts
    assert restarts > 0 or name != "resnet"


def test_a_value_made_by_torch_tensor_is_movable() -> None:
    with recoup.budget("1MiB") as run:
        below = [torch.zeros(2048, dtype=torch.uint8) for _ in range(300)]  # at both ends
        between = torch.tensor([3.0, 4.0])  # filled by pointer, and not yet used by an op
        below.clear()
        large = torch.ones((1 << 20) - 4096, dtype=torch.uint8)
        assert between.tolist() == [3.0, 4.0]
        assert bool(large.all())
    assert run.stats().moves > 0
