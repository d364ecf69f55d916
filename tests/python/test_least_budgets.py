"""Near the least budget: what fits at one budget fits at every larger one, and gives the same bits.

Ops are priced by their bytes here, so that every run decides alike.
"""

import pytest
import torch

import recoup
from recoup.bench.nets.tiny import net_named
from train import HUGE, assert_bits_equal, train, variant_named

STEPS = 2
FLOOR_PERCENT = {"char_gpt": 27, "resnet": 40}  # of the unbudgeted peak


@pytest.mark.parametrize("name", FLOOR_PERCENT)
def test_no_holes_near_the_least_budget(name: str) -> None:
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


def test_what_torch_tensor_made_moves_out_of_the_way() -> None:
    with recoup.budget("1MiB") as run:
        below = [torch.zeros(2048, dtype=torch.uint8) for _ in range(300)]  # at the low end too
        between = torch.tensor([3.0, 4.0])  # filled by pointer, and no op has used it yet
        below.clear()
        large = torch.ones((1 << 20) - 4096, dtype=torch.uint8)
        assert between.tolist() == [3.0, 4.0]
        assert bool(large.all())
    assert run.stats().moves > 0
