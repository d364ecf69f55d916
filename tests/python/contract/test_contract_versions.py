"""The contract: a value keeps its content when a tensor that it was computed from is written."""

import copy

import numpy as np
import pytest
import torch

import recoup
from differential import Hand, N, both, made

# ---- versions of recomputable values ----


def test_dependents_of_an_old_version_keep_their_content() -> None:
    def program(hand: Hand) -> object:
        x = made()
        y = x.exp()
        hand.evict(y)
        x.relu_()
        hand.see(y)  # computed from x before the write
        hand.evict(x, y)
        return x, y

    assert both(program).replays >= 3


def test_a_value_that_is_written_before_its_first_read_is_recomputable() -> None:
    """Activations are changed in this way: each version and its dependents can be recomputed."""

    def program(hand: Hand) -> object:
        x = made()
        x.relu_()
        x.add_(1)
        y = x.exp()
        hand.evict(x, y)
        hand.see(y, x)
        hand.evict(y)
        x.zero_()  # needs no byte of the old content
        hand.see(y)
        hand.evict(x, y)
        return x, y

    assert both(program).replays >= 5


def test_a_value_that_is_repeatedly_read_and_changed_is_non_recomputable() -> None:
    """A parameter made in the scope is a source from its first change on, like one from outside."""

    def program(hand: Hand) -> object:
        weight, mean = torch.randn(N), made()
        for step in range(3):
            loss = (weight * 2).sum() + (mean * 2).sum()
            weight.add_(loss, alpha=1e-3)
            mean.add_(loss, alpha=1e-3)
            if step > 0:  # it was first computed by an op, as gradients are
                hand.assert_non_recomputable(mean)
            hand.assert_non_recomputable(weight)
        return weight, mean

    both(program)


def test_views_follow_a_write_to_their_base() -> None:
    def program(hand: Hand) -> object:
        x = made().reshape(2, -1)
        row = x[0]
        y = row * 3
        hand.evict(x, y)
        assert not hand.watched or not recoup.is_resident(row)
        row.add_(1)
        z = x.t().cumsum(0)
        hand.evict(x, y, z)
        hand.see(row)
        hand.evict(x)
        return x, row, y, z

    assert both(program).replays > 0


@pytest.mark.parametrize("write", ["zero_", "fill_", "copy_", "random_", "resize_", "out=", "[]="])
def test_writes_that_do_not_read_their_target(write: str) -> None:
    def program(hand: Hand) -> object:
        x = made()
        old = x.sin()
        hand.evict(old)
        if write == "zero_":
            x.zero_()
        elif write == "fill_":
            x.fill_(3)
        elif write == "copy_":
            x.copy_(made(5))
        elif write == "random_":
            x.random_(0, 10)
        elif write == "resize_":
            x.resize_(N // 2)
        elif write == "out=":
            torch.cos(made(3), out=x)
        else:
            x[: N // 2] = 7
        new = x.cos()
        hand.try_evict(x)
        hand.evict(old, new)
        return x, old, new

    assert both(program).replays > 0


def test_writes_that_read_their_target_and_other_tensors() -> None:
    def program(hand: Hand) -> object:
        x, y = made(), made(2)
        x += y
        z = x * y
        for each in (x, y, z):
            hand.evict(each)
            hand.see(z)
        x.mul_(x)
        x.add_(x.flip(0))
        x[1:].add_(x[:-1].clone())
        square = x.reshape(32, -1)
        square.add_(square.t().clone())
        square.addmm_(square, square.t() * 0.01)
        hand.assert_non_recomputable(x)  # repeatedly read and changed
        hand.try_evict(z)
        return x, y, z

    assert both(program).replays >= 3


def test_a_replay_restores_only_the_version_that_it_computes() -> None:
    def program(hand: Hand) -> object:
        x = made()
        y = x.exp()
        z = y * 2
        hand.evict(y, z)
        y.add_(1)
        hand.see(z)  # needs the old version of y, whose new version stays live
        hand.see(y)
        hand.evict(y, z)
        y.mul_(3)
        return z, y, x

    assert both(program).replays > 2


def test_a_replay_never_writes_a_live_storage() -> None:
    def program(hand: Hand) -> object:
        values, indices = made().reshape(32, -1).max(dim=0)
        ordered, order = made(-1).sort()
        hand.try_evict(values)
        hand.evict(ordered)
        indices.add_(100)
        order.mul_(2)
        return values, indices, ordered, order

    assert both(program).replays > 0


def test_two_results_of_one_op_are_replayed() -> None:
    def program(hand: Hand) -> object:
        ordered, order = made(-1).sort()
        hand.evict(ordered, order)
        hand.see(order)
        hand.evict(order)
        hand.see(ordered)
        return ordered, order

    assert both(program).replays >= 2


def test_results_that_share_a_storage_although_the_schema_denies_it() -> None:
    def program(hand: Hand) -> object:
        x = made().reshape(4, 16, 16)
        y = x @ made()[:256].reshape(16, 16)  # calls _unsafe_view at its end
        first, second = torch.unsafe_chunk(made(), 2)
        hand.evict(y, first)
        first.add_(1)
        hand.evict(second)
        y.mul_(2)
        hand.evict(y)
        return y, first, second

    assert both(program).replays > 2


def test_writes_by_foreach_ops() -> None:
    def program(hand: Hand) -> object:
        values = [made(i + 1) for i in range(5)]
        old = [v.tanh() for v in values]
        hand.evict(*values, *old)
        torch._foreach_mul_(values, 0.5)
        torch._foreach_add_(values, old)
        hand.evict(*values, *old)
        torch._foreach_addcdiv_(values, old, [v.abs() + 1 for v in values])
        hand.assert_non_recomputable(*values)  # repeatedly read and changed
        return values, old

    assert both(program).replays > 5


def test_autograd_sees_the_version_counters_of_plain_pytorch() -> None:
    def program(hand: Hand) -> object:
        w = made().requires_grad_()
        x = w.exp()
        y = x * x
        hand.evict(y)
        before = x._version
        hand.evict(x)
        hand.materialize(x)
        assert x._version == before
        y.sum().backward()
        z = w.exp()
        loss = z.square().sum()
        with torch.no_grad():
            z.add_(1)
        hand.try_evict(z)
        with hand.raises(RuntimeError):  # modified by an inplace operation
            loss.backward()
        return w.grad, z

    assert both(program).replays > 0


# ---- sources that change ----


@pytest.mark.parametrize("evicted", ["both", "c", "none"])
@pytest.mark.parametrize("where", ["inside", "outside"])
def test_freeze_includes_indirect_dependents(evicted: str, where: str) -> None:
    outer = torch.linspace(-1, 1, N)

    def program(hand: Hand) -> object:
        p = outer.clone() if where == "inside" else outer
        p.requires_grad_(False)
        if where == "outside":
            p.copy_(torch.linspace(-1, 1, N))
        b = p.exp()
        c = b.sin()
        if evicted == "both":
            hand.evict(b)
        del b
        if evicted in ("both", "c"):
            hand.evict(c)
        p.add_(1)
        hand.try_evict(c)
        hand.see(c)
        p.zero_()
        return c, p.clone()

    stats = both(program)
    if where == "outside":
        assert stats.freezes + stats.old_version_copies > 0
    else:
        assert stats.evictions > 0


def test_long_chains_of_dependents_are_frozen() -> None:
    p = torch.linspace(-1, 1, N)

    def program(hand: Hand) -> object:
        p.copy_(torch.linspace(-1, 1, N))
        values, x = [], p
        for i in range(60):
            x = (x + 0.1).tanh()
            if i % 7 == 0:
                values.append(x)
            elif i % 3 == 0:
                hand.evict(x)
        hand.evict(*values)
        p.mul_(2)
        hand.see(values)
        hand.try_evict(*values)
        return values

    stats = both(program)
    assert stats.freezes + stats.old_version_copies > 0 and stats.replays > 20


def test_the_old_version_is_copied_if_its_dependents_do_not_fit() -> None:
    count, size = 12, 2**16

    def program(hand: Hand) -> object:
        leaf = torch.empty(size).copy_(torch.from_numpy(np.linspace(-1, 1, size)))
        values = [leaf.mul(i) for i in range(count)]
        hand.try_evict(*values)
        leaf.add_(1)
        for i in range(count):
            hand.see(values[i])
            hand.try_evict(values[i])
        leaf.add_(1)
        while values:
            hand.see(values.pop())
        return leaf

    # Room for four or five of the thirteen tensors.
    assert both(program, 5 * 4 * size + 2**16).replays > count


def test_a_batch_norm_output_does_not_depend_on_running_statistics() -> None:
    norm = torch.nn.BatchNorm1d(64)
    start = copy.deepcopy(norm.state_dict())

    def program(hand: Hand) -> object:
        norm.load_state_dict(start)
        outputs = []
        for i in range(4):
            outputs.append(norm(made(i + 1).reshape(-1, 64)).detach())
            hand.evict(*outputs)
        assert norm.num_batches_tracked is not None
        hand.see(outputs)
        return outputs, norm.state_dict()

    stats = both(program)
    assert stats.replays >= 4
    # No output reads the running statistics that were written.
    assert stats.frozen_values == 0
