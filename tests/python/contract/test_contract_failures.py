"""The contract: failures lose no value, and values may die at any moment."""

import functools

import torch

import recoup
from differential import Hand, N, both, in_thread, made

# ---- failures ----


def test_a_kernel_that_throws_half_way_keeps_old_versions() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)

    def program(hand: Hand) -> object:
        x, y = made(), made(2)
        before_x, before_y = x.exp(), y.exp()
        hand.evict(before_x, before_y)
        bad = torch.tensor([0, 1, 2, 10 * N])
        with hand.raises((IndexError, RuntimeError)):  # type: ignore[arg-type]
            x.index_fill_(0, bad, 9.0)
        with hand.raises((IndexError, RuntimeError)):  # type: ignore[arg-type]
            y.scatter_(0, bad, torch.full((4,), 9.0))
        hand.see(before_x, before_y, x, y)
        after = x + y
        hand.evict(after)
        hand.try_evict(x, y)
        return x, y, before_x, before_y, after

    try:
        assert both(program).replays >= 2
    finally:
        torch.set_num_threads(threads)


def test_failing_ops_change_no_value() -> None:
    def program(hand: Hand) -> object:
        x = made()
        y = x.exp()
        hand.evict(x, y)
        with hand.raises(RuntimeError):
            x @ y[:7]
        with hand.raises(RuntimeError):
            x.view(13, -1)
        with hand.raises(RuntimeError):
            x.add_(torch.ones(5, 7))
        with hand.raises(torch.linalg.LinAlgError):
            torch.linalg.cholesky(-torch.eye(32))
        hand.evict(y)
        return x, y

    assert both(program).replays >= 2


# ---- lifetimes ----


def test_a_value_may_die_on_another_thread_in_a_pin_or_in_a_hook() -> None:
    def program(hand: Hand) -> object:
        kept = made()
        box = [made(2), made(3), made(4)]
        hand.evict(box[0], box[1])
        assert not in_thread(box.clear)
        with hand.pin(kept):
            pinned = made(5)
            with hand.pin(pinned):
                del pinned
            x = kept.clone().requires_grad_()
            y = x.exp()
            holder = [y]
            y.register_hook(lambda grad: holder.clear())
            z = (y * y).sum()
            del y
            z.backward()
        return kept, x.grad

    both(program, evict_after_op=False)
    assert both(program, evict_after_op=True).replays > 0


def test_long_lineages_are_freed_without_recursion() -> None:
    def program(hand: Hand) -> object:
        x = made()
        for _ in range(9000):
            x = x + 1e-3
        hand.evict(x)
        hand.see(x)
        y = x.clone()
        del x
        return y

    assert both(program).replays > 0


def test_results_are_usable_after_the_scope() -> None:
    with recoup.budget("64MiB") as run:
        x = made()
        y = x.exp()
        assert recoup.evict(x) and recoup.evict(y)
    assert run.stats().replays >= 2
    sums: list[float] = []

    def add_up(x: torch.Tensor, y: torch.Tensor) -> None:
        sums.append(float((x + y).double().sum()))

    assert not in_thread(functools.partial(add_up, x, y))
    assert sums == [float((made() + made().exp()).double().sum())]
    x.add_(1)
    x.resize_(2 * N).zero_()
    assert x.numpy().sum() == 0
    del x, y
