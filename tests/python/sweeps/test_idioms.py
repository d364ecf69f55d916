"""Programs of kinds that public code contains compute plain PyTorch's bits in any budget."""

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import recoup
from idioms import IDIOMS

pytestmark = pytest.mark.usefixtures("one_and_two_threads")
OPTIONS = recoup.Options(cost_model="bytes", small_result_bytes=64)
FRACTIONS = (1.0, 0.8, 0.6, 0.4)
VARIES = {"message_passing"}
"""With several threads two plain runs may differ: gradients of indices depend on their order."""


def run(program: Callable[[], list[Tensor]]) -> list[Tensor]:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [each.clone() for each in program()]


@pytest.mark.parametrize("name", IDIOMS)
def test_bits_are_equal_in_any_budget(name: str) -> None:
    run(IDIOMS[name])  # the first parallel call of a math function may differ
    plain = run(IDIOMS[name])
    with recoup.budget("4GiB", options=OPTIONS) as scope:
        unpressured = run(IDIOMS[name])
    peak = scope.stats().peak_bytes
    if torch.get_num_threads() == 1 or name not in VARIES:
        assert all(map(torch.equal, unpressured, plain))
    found, evictions = 0, 0
    for fraction in FRACTIONS:
        budget = int(fraction * peak)
        try:
            with recoup.budget(budget, options=OPTIONS) as scope:
                results = run(IDIOMS[name])
        except recoup.OutOfBudgetError:
            assert fraction < 1, "a run fits in its own peak"
            continue
        assert scope.stats().peak_bytes <= budget
        assert all(map(torch.equal, results, unpressured)), fraction
        found += 1
        evictions += scope.stats().evictions
    assert evictions > 0 or found == 1
