"""The contract: a replay gives the bits of the first run, whatever has changed since then."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import recoup
from differential import Hand, N, both, check, made

# ---- recorded inputs ----


def test_set_and_assignments_to_data_are_writes() -> None:
    def program(hand: Hand) -> object:
        x, other = made(), made(9)
        y = x.exp()
        hand.evict(y)
        x.data = other
        hand.see(y, x)
        z = x * 2
        hand.evict(z)
        x.set_(made(4))
        hand.see(z, x)
        w = torch.nn.Parameter(made(3))
        v = w.detach() * 2
        hand.evict(v)
        w.data = made(5)
        torch.utils.swap_tensors(x, other)
        return x, y, z, v, w, other

    assert both(program).replays >= 3


def test_a_storage_may_be_resized_to_zero_and_back() -> None:
    # FSDP frees parameters in this way.
    def program(hand: Hand) -> object:
        x = made().clone()
        y = x.exp()
        hand.evict(y)
        storage = x.untyped_storage()
        size = storage.size()
        # No address was taken: values computed from it may be evicted too.
        w = x * 2
        hand.evict(w)
        storage.resize_(0)
        assert storage.size() == 0
        hand.see(y, w)
        storage.resize_(size)
        x.copy_(made(2))
        z = x + y
        hand.evict(z)
        return x, y, z

    assert both(program).replays >= 3


def test_a_storage_keeps_its_content_when_it_grows() -> None:
    def program(hand: Hand) -> object:
        x = made().mul(2)
        y, part = x.exp(), x[8:]
        hand.evict(x, y)
        x.untyped_storage().resize_(8 * N)
        hand.see(x, y, part)
        x.mul_(3)
        z = part + 1
        hand.evict(y, z)
        x.untyped_storage().resize_(4 * N)
        return x, y, z, part

    assert both(program).replays >= 3


@pytest.mark.filterwarnings("ignore:TypedStorage")
def test_tensors_are_evictable_after_their_storage_was_accessed() -> None:
    def program(hand: Hand) -> object:
        x = made().mul(2)
        storage = x.untyped_storage()
        hand.evict(x)
        again = torch.empty(0).set_(storage, 4, (8,), (2,))  # type: ignore[call-overload]
        hand.evict(x)
        typed = x.storage()[5]
        hand.evict(x)
        again.add_(1)
        y = x.exp()
        hand.evict(y)
        return x, y, again, typed, storage.tolist()

    assert both(program).replays >= 4


def test_views_and_queries_of_metadata_need_no_replay() -> None:
    def program(hand: Hand) -> object:
        x = made()
        hand.evict(x)
        before = hand.replays()
        views = [
            x.view(32, -1),
            x.t(),
            x[3:],
            x.detach(),
            x.expand(2, -1),
            x.as_strided((2,), (1,)),
        ]
        fresh = [torch.ones_like(x), torch.zeros_like(x), x.new_full((N,), 2.0)]
        assert x.shape == (N,) and x.is_contiguous() and x.dtype == torch.float32
        if hand.watched:
            assert hand.replays() == before and not recoup.is_resident(x)
        return views, fresh

    assert both(program).replays > 0


def test_a_replay_has_the_thread_count_of_the_first_run() -> None:
    threads = torch.get_num_threads()

    def program(hand: Hand) -> object:
        torch.set_num_threads(2)
        x = torch.sin(torch.arange(2.0**18))
        y = x.reshape(-1, N).sum(0)
        z = torch.fft.rfft(x)
        s = x.sum() * torch.ones(N)
        hand.evict(y, z, s)
        torch.set_num_threads(1)
        hand.see(y, z, s)
        assert torch.get_num_threads() == 1
        return x.sum()

    try:
        assert both(program, evict_after_op=True).replays >= 3
    finally:
        torch.set_num_threads(threads)


def test_a_replay_has_the_modes_of_the_first_run() -> None:
    def program(hand: Hand) -> object:
        tiny = torch.full((N,), 1e-30)
        with_denormals = tiny * 1e-10
        with torch.no_grad():
            quiet = made().exp()
        with torch.inference_mode():
            inference = made().cos()
        hand.evict(with_denormals, quiet, inference)
        flushes = torch.set_flush_denormal(True)
        try:
            flushed = tiny * 1e-10
            hand.evict(flushed)
            hand.see(with_denormals)
        finally:
            torch.set_flush_denormal(False)
        hand.see(flushed)
        assert not flushes or int(flushed.count_nonzero()) == 0
        assert int(with_denormals.count_nonzero()) == N
        with torch.autocast("cpu", torch.bfloat16):
            hand.see(quiet, inference.clone())
        return quiet

    assert both(program).replays >= 4


@pytest.mark.parametrize("grad", [True, False])
def test_a_replay_of_an_lstm_layer_has_its_grad_mode(grad: bool) -> None:
    torch.manual_seed(3)
    lstm = torch.nn.LSTM(16, 16, 2, bidirectional=True)

    def program(hand: Hand) -> object:
        with torch.set_grad_enabled(grad):
            out, (h, c) = lstm(made().reshape(8, 8, 16))
        hand.try_evict(out, h, c)
        with torch.set_grad_enabled(not grad):
            hand.see(out, h, c)
        if grad:
            lstm.zero_grad()
            out.sum().backward()
            return [p.grad for p in lstm.parameters()]
        return out

    assert both(program).evictions > 0


def test_conjugate_and_negative_views_are_replayed() -> None:
    def program(hand: Hand) -> object:
        z = torch.complex(made(), made(2)).reshape(32, 32)
        conjugate, imaginary = z.conj(), z.conj().imag
        product = conjugate @ z
        inverse = torch.linalg.pinv(z)
        hand.evict(z, product, inverse)
        assert conjugate.is_conj() and imaginary.is_neg()
        hand.see(imaginary, product)
        conjugate.mul_(2j)
        hand.evict(z)
        return z, conjugate, imaginary, product, inverse

    assert both(program).replays > 3


@pytest.mark.parametrize(
    "view", [lambda z: z.conj().imag, lambda z: torch._neg_view(z.real), torch._neg_view]
)
def test_ops_on_negative_views_are_replayed(view: Callable[[torch.Tensor], torch.Tensor]) -> None:
    def program(hand: Hand) -> object:
        z = torch.complex(made(), made(2))
        negative = view(z)
        assert negative.is_neg()
        copy, scaled = negative.clone(), negative * 0.5
        hand.evict(copy, scaled)
        hand.see(copy, scaled)
        return copy, scaled

    assert both(program).replays >= 2


# ---- random numbers ----


def test_a_replay_does_not_advance_the_random_numbers() -> None:
    def program(hand: Hand) -> object:
        noise = torch.randn(N)
        mask = F.dropout(torch.ones(N), 0.5)
        leaky = F.rrelu(made(), training=True)
        drawn = torch.zeros(N).bernoulli_(0.3)
        hand.evict(noise, mask, drawn)
        hand.try_evict(leaky)  # its noise is written into a tensor that was made without bytes
        after = torch.rand(N)
        hand.see(mask)  # replayed, without advancing the generator
        again = torch.rand(N)
        torch.manual_seed(77)
        hand.evict(after, noise)
        hand.see(noise)
        last = torch.rand(N)
        return noise, mask, leaky, drawn, after, again, last

    assert both(program).replays >= 4


def test_explicit_generators_are_not_advanced_by_replays() -> None:
    def program(hand: Hand) -> object:
        generator = torch.Generator().manual_seed(11)
        first = torch.randn(N, generator=generator)
        hand.try_evict(first)
        second = torch.zeros(N).normal_(generator=generator)
        hand.see(first)
        hand.try_evict(first, second)
        generator.manual_seed(5)
        third = torch.randn(N, generator=generator)
        hand.see(second)
        return first, second, third, generator.get_state()

    assert both(program).evictions > 0


def test_repeated_random_writes_are_replayed() -> None:
    def program(hand: Hand) -> object:
        x = torch.zeros(N)
        old = []
        for _ in range(6):
            x.normal_()
            x.add_(torch.randn_like(x))
            old.append(x * 2)
            hand.evict(x, old[-1])
        return x, old

    assert both(program).replays >= 6


# ---- alignment and uninitialized memory ----


def test_every_tensor_is_aligned() -> None:
    with recoup.budget(
        "8MiB", options=recoup.Options(evict_after_op=True, small_result_bytes=0)
    ) as run:
        tensors = [torch.rand(i).mul(2) for i in (1, 3, 17, 100, 1000, 4097)]
        tensors += [t.to(torch.bfloat16) for t in tensors]
        for tensor in tensors:
            recoup.evict(tensor)
        assert all(tensor.data_ptr() % 64 == 0 for tensor in tensors)
        check(run)
    assert run.stats().replays > 0


def test_values_are_right_that_were_made_uninitialized_and_then_written() -> None:
    def program(hand: Hand) -> object:
        x = torch.empty(N)
        hand.try_evict(x)
        x.fill_(2)
        y = torch.empty_like(x)
        torch.sin(x, out=y)
        z = x.new_empty(N)
        z[: N // 2] = 1
        z[N // 2 :] = 2
        hand.try_evict(x, y, z)
        return x, y, z

    both(program)
    both(program, evict_after_op=True)


# ---- check_replays ----


def test_verify_mode_checks_every_replay() -> None:
    def program(hand: Hand) -> object:
        x = made()
        for _ in range(20):
            x = F.dropout(x.tanh() + 1, 0.1)
            x.add_(0.5)
        y = torch.empty(N)  # uninitialized content is not checked
        return x, y.zero_()

    stats = both(program, check_replays=True, evict_after_op=True)
    assert stats.replay_checks > 0 and stats.replays > 20


def test_verify_mode_names_the_op_that_differs() -> None:
    calls = 0

    @torch.library.custom_op("recoup_contract::unsteady", mutates_args=())
    def unsteady(x: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return x + calls

    recoup.allow_replay("recoup_contract::unsteady")
    with pytest.raises(RuntimeError, match="recoup_contract::unsteady"):
        with recoup.budget("64MiB", check_replays=True) as run:
            x = unsteady(made())
            assert recoup.evict(x)
            try:
                x.sum()
            finally:
                check(run)
    assert calls == 2


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_verify_mode_compares_only_defined_bytes(reduction: str) -> None:
    """A loss is in a storage of the size of its elements, of which the rest is uninitialized."""
    losses = [
        torch.nn.functional.mse_loss,
        torch.nn.functional.smooth_l1_loss,
        torch.nn.functional.huber_loss,
    ]
    with recoup.budget("64MiB", check_replays=True) as run:
        x, y = torch.randn(256, 512), torch.randn(256, 512)
        for loss in losses:
            made = loss(x * 2, y, reduction=reduction)
            recoup.evict(made)
            junk = [torch.full((256, 512), float(i)) for i in range(4)]
            del junk
            made.item()
        # A write through a view over uninitialized bytes.
        rows = torch.empty(64, 512)
        for row in range(0, 64, 2):
            rows[row] = x[row] * 2
        picked = rows[::2] * 3
        recoup.evict(picked)
        assert torch.equal(picked, x[:64:2] * 2 * 3)
        run.check()
    assert run.stats().replay_checks > 0
