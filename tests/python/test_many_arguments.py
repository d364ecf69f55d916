"""Ops of very many arguments and results: each is found in a table, and is the right one."""

import torch

import recoup


def test_lists_that_are_longer_than_what_is_looked_through() -> None:
    def program() -> list[float]:
        made = [torch.full((300,), float(i)) for i in range(100)]
        twice = made + made[::-1]  # each of them is there two times
        stacked = torch.stack(twice)
        parts = [part * 2 for part in stacked.unbind()]
        torch._foreach_add_(made, 1.0)
        copies = torch.split_with_sizes_copy(stacked, [2] * 100)
        sums = torch._foreach_mul(made, 3.0)
        return [t.sum().item() for t in (stacked, *parts, *made, *copies, *sums)]

    want = program()
    for options in ({"evict_after_op": True}, {"verify": True, "evict_after_op": True}, {}):
        with recoup.budget("2MiB", **options) as run:  # type: ignore[arg-type]
            assert program() == want
            run.check()
