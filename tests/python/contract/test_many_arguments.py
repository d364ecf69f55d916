"""Ops with very many arguments and results: a table lookup finds the right value for each."""

import torch

import recoup
from recoup.bench.flat_options import split


def test_lists_above_the_length_of_a_linear_search() -> None:
    def program() -> list[float]:
        made = [torch.full((300,), float(i)) for i in range(100)]
        twice = made + made[::-1]  # each tensor is in the list twice
        stacked = torch.stack(twice)
        parts = [part * 2 for part in stacked.unbind()]
        torch._foreach_add_(made, 1.0)
        copies = torch.split_with_sizes_copy(stacked, [2] * 100)
        sums = torch._foreach_mul(made, 3.0)
        return [t.sum().item() for t in (stacked, *parts, *made, *copies, *sums)]

    want = program()
    for options in ({"evict_after_op": True}, {"verify": True, "evict_after_op": True}, {}):
        with recoup.budget("2MiB", **split(options)) as run:  # type: ignore[arg-type]
            assert program() == want
            run.check()
