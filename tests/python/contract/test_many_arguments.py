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
    for options in ({"evict_after_op": True}, {"check_replays": True, "evict_after_op": True}, {}):
        with recoup.budget("2MiB", **split(options)) as run:  # type: ignore[arg-type]
            assert program() == want
            run.check()


def test_more_operands_and_results_than_16_bits_count() -> None:
    count = 66_000
    with recoup.budget("1GiB") as run, torch.no_grad():
        rows = [torch.full((1,), float(i)) for i in range(count)]
        whole = torch.cat(rows)
        assert recoup.evict(whole)
        assert torch.equal(whole, torch.arange(float(count)))
        parts = torch._foreach_neg(rows)
        for last in (parts[0], parts[-1]):
            recoup.evict(last)
        assert parts[0].item() == 0 and parts[-1].item() == 1.0 - count
        run.check()
