"""Threads draw random numbers during replays: neither changes the numbers of the other."""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import recoup
from differential import Hand, N, both, peak
from recoup import _C

# Ops that draw: with a generator argument, with an overload that has one, with neither.
DRAWS: dict[str, Callable[[torch.Generator | None], torch.Tensor]] = {
    "rand": lambda g: torch.rand(N, generator=g),
    "randn": lambda g: torch.randn(N, generator=g),
    "randn of doubles": lambda g: torch.randn(N, dtype=torch.float64, generator=g),
    "odd randn": lambda g: torch.randn(13, generator=g).repeat(N),
    "randint": lambda g: torch.randint(3, 1000, (N,), generator=g),
    "randperm": lambda g: torch.randperm(N, generator=g),
    "bernoulli_": lambda g: torch.zeros(N).bernoulli_(0.3, generator=g),
    "bernoulli": lambda g: torch.full((N,), 0.4).bernoulli(generator=g),
    "normal_": lambda g: torch.zeros(N).normal_(generator=g),
    "exponential_": lambda g: torch.zeros(N).exponential_(generator=g),
    "multinomial": lambda g: torch.ones(64).multinomial(N, replacement=True, generator=g),
    "poisson": lambda g: torch.poisson(torch.full((N,), 4.0), generator=g),
}
DRAWS_OF_THE_DEFAULT: dict[str, Callable[[], torch.Tensor]] = {
    "rand_like": lambda: torch.rand_like(torch.ones(N)),
    "randint_like": lambda: torch.randint_like(torch.ones(N), 100),
    "dropout": lambda: F.dropout(torch.ones(N), 0.4),
    "native_dropout": lambda: torch.native_dropout(torch.ones(N), 0.4, True)[0],
    "alpha_dropout": lambda: F.alpha_dropout(torch.ones(N), 0.4, training=True),
    "feature_dropout": lambda: F.dropout2d(torch.ones(4, N, 2, 2), 0.4),
    "rrelu": lambda: torch.ops.aten.rrelu_with_noise_functional(
        -torch.ones(N), torch.zeros(N), training=True
    )[0],
    "attention": lambda: F.scaled_dot_product_attention(
        *(torch.linspace(-1, 1, N).reshape(1, 2, 64, 8) for _ in range(3)), dropout_p=0.3
    ),
    "gamma": lambda: torch._standard_gamma(torch.ones(N)),
    "lstm": lambda: torch.lstm(
        torch.ones(8, 4, 16),
        [torch.zeros(2, 4, 16)] * 2,
        [torch.full(s, 0.1) for s in ((64, 16), (64, 16), (64,), (64,)) * 2],
        True, 2, 0.4, True, False, False,
    )[0],
}  # fmt: skip
ALL: dict[str, Callable[[], torch.Tensor]] = {
    **{name: lambda draw=draw: draw(None) for name, draw in DRAWS.items()},
    **DRAWS_OF_THE_DEFAULT,
}


IN_PLACE: dict[str, tuple[float, ...]] = {
    "bernoulli_": (),
    "cauchy_": (),
    "exponential_": (),
    "geometric_": (0.5,),
    "log_normal_": (),
    "normal_": (),
    "random_": (),
    "uniform_": (),
}


def draw_numbers() -> None:
    torch.rand(3)


def draw_by_dropout() -> None:
    F.dropout(torch.ones(300), 0.5)


def seed() -> None:
    torch.manual_seed(5)


def read_and_set_state() -> None:
    torch.set_rng_state(torch.get_rng_state())


def fork_rng() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        torch.rand(5)


DISTURBERS = (draw_numbers, draw_by_dropout, seed, read_and_set_state, fork_rng)


@contextlib.contextmanager
def threads_that(*works: Callable[[], Any]) -> Iterator[None]:
    """Calls each function repeatedly on its own thread, until the end of the `with`.

    The threads are outside of the scope.
    """
    stop = threading.Event()
    errors: list[BaseException] = []

    def loop(work: Callable[[], Any]) -> None:
        _C.carry(False)
        try:
            while not stop.is_set():
                work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=loop, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not errors, errors


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    import faulthandler

    # pytest has replaced sys.stderr.
    faulthandler.dump_traceback_later(120, exit=True, file=sys.__stderr__)
    yield
    faulthandler.cancel_dump_traceback_later()


def replay_while(disturbers: tuple[Callable[[], Any], ...], draw: Callable[[], Any]) -> None:
    """Results are replayed with the same bits while other threads draw and seed."""
    with (
        recoup.budget("64MiB", options=recoup.Options(small_result_bytes=0)) as run,
        threads_that(*disturbers),
    ):
        made = [draw() for _ in range(6)]
        first = [x.clone() for x in made]
        for copy in first:
            recoup.pin(copy)
        for _ in range(8):
            for x in made:
                recoup.evict(x)
            for x, copy in zip(made, first, strict=True):
                assert torch.equal(x, copy)
    assert run.stats().replays >= 40


@pytest.mark.parametrize("name", ALL)
def test_replays_while_threads_draw_and_seed(name: str) -> None:
    replay_while(DISTURBERS, ALL[name])


@pytest.mark.parametrize("name", DRAWS)
def test_replays_with_a_generator_that_threads_share(name: str) -> None:
    generator = torch.Generator().manual_seed(1)
    disturbers = (
        lambda: torch.rand(3, generator=generator),
        lambda: generator.manual_seed(4),
        lambda: generator.set_state(generator.get_state()),
        draw_numbers,
    )
    replay_while(disturbers, lambda: DRAWS[name](generator))


@pytest.mark.parametrize("name", ALL)
def test_the_numbers_of_a_thread_are_those_without_replays(name: str) -> None:
    def numbers() -> list[float]:
        return [float(torch.rand(2).sum() + torch.randn(1)) for _ in range(400)]

    torch.manual_seed(11)
    plain = numbers()
    drawn: list[float] = []
    with recoup.budget("64MiB", options=recoup.Options(small_result_bytes=0)):
        x = ALL[name]()
        torch.manual_seed(11)
        thread = threading.Thread(target=lambda: drawn.extend(numbers()))
        thread.start()
        while thread.is_alive():
            recoup.evict(x)
            x.sum()
        thread.join()
    assert drawn == plain


@pytest.mark.parametrize("name", ALL)
def test_bits_and_state_are_those_of_plain_pytorch(name: str) -> None:
    def program(hand: Hand) -> object:
        made = []
        for _ in range(4):
            made.append(ALL[name]())
            hand.try_evict(*made)
            hand.see(*(x.clone() for x in made), torch.get_rng_state())
        return made

    assert both(program, evict_after_op=True).replays > 4


@pytest.mark.parametrize("name", DRAWS)
def test_a_generator_of_the_program_is_not_advanced_by_replays(name: str) -> None:
    def program(hand: Hand) -> object:
        generator = torch.Generator().manual_seed(9)
        made = []
        for _ in range(4):
            made.append(DRAWS[name](generator))
            hand.try_evict(*made)
            hand.see(*(x.clone() for x in made), generator.get_state())
        del generator
        hand.try_evict(*made)
        by_default = DRAWS[name](torch.default_generator)
        hand.try_evict(by_default)
        return made, by_default

    assert both(program, evict_after_op=True).replays > 4


def test_a_failed_draw_does_not_advance_the_generator() -> None:
    # With more room, the program continues with the numbers that it would have had.
    def program(grown: Callable[[], None]) -> list[torch.Tensor]:
        torch.manual_seed(2)
        small = torch.rand(64)
        ones = torch.ones(1 << 20)
        try:
            large = torch.native_dropout(ones, 0.3, True)[0]
        except recoup.OutOfBudgetError:
            grown()
            large = torch.native_dropout(ones, 0.3, True)[0]
        return [small, large, torch.rand(64)]

    plain = program(lambda: None)
    with recoup.budget("7MiB") as run:
        ours = program(lambda: run._engine.set_budget(64 << 20))
    assert all(torch.equal(a, b) for a, b in zip(plain, ours, strict=True))


def test_kernels_that_draw_on_many_threads_do_not_deadlock() -> None:
    # It would hang if a kernel locked the generator on a worker thread of OpenMP.
    threads = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        with recoup.budget("1GiB", options=recoup.Options(evict_after_op=True)) as run:
            for draw in (
                *(
                    lambda n, d=name, a=a: getattr(torch.empty(n), d)(*a)
                    for name, a in IN_PLACE.items()
                ),
                lambda n: torch.rand(n),
                lambda n: torch.randperm(n),
                lambda n: F.dropout(torch.ones(n), 0.5),
                lambda n: torch.native_dropout(torch.ones(n), 0.5, True)[0],
                lambda n: torch.full((n,), 0.5).bernoulli(),
                lambda n: torch.zeros(n).bernoulli_(torch.full((n,), 0.5)),
                lambda n: F.rrelu(-torch.ones(n), training=True),
                lambda n: torch.poisson(torch.ones(n)),
                lambda n: torch._standard_gamma(torch.ones(n)),
                lambda n: torch._sample_dirichlet(torch.ones(n // 64, 64)),
                lambda n: torch.binomial(torch.full((n,), 9.0), torch.full((n,), 0.5)),
                lambda n: torch.ones(n // 64, 64).multinomial(8),
                lambda n: F.scaled_dot_product_attention(
                    *(torch.ones(2, 4, n // 512, 64) for _ in range(3)), dropout_p=0.5
                ),
            ):
                x = draw(1 << 18)
                recoup.evict(x)
                x.sum()
        assert run.stats().replays > 20
    finally:
        torch.set_num_threads(threads)


def test_overloads_with_a_generator_are_found() -> None:
    found = {
        name: _C.replay_traits(f"aten::{name}", overload)["with_generator"]
        for name, overload in (
            ("rand", ""), ("randn", ""), ("randint", ""), ("randint", "low"), ("randperm", ""),
            ("native_dropout", ""),
        )
    }  # fmt: skip
    assert found == {
        "rand": "generator",
        "randn": "generator",
        "randint": "low_generator",
        "randperm": "generator",
        "native_dropout": "",
    }


def test_a_custom_op_that_draws_makes_non_recomputable_values() -> None:
    # Its kernel may be in Python, and would wait for the GIL while it holds the generator.
    @torch.library.custom_op(
        "recoup_random::noise", mutates_args=(), tags=(torch.Tag.nondeterministic_seeded,)
    )
    def noise(x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand_like(x)

    recoup.allow_replay("recoup_random::noise")
    with recoup.budget("64MiB", options=recoup.Options(small_result_bytes=0)), threads_that(seed):
        for _ in range(200):
            assert not recoup.evict(noise(torch.ones(N)))


def test_a_dispatch_mode_sees_draws_while_a_thread_seeds() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return func(*args, **(kwargs or {}))

    with (
        recoup.budget("64MiB", options=recoup.Options(small_result_bytes=0)),
        threads_that(seed, draw_numbers),
        Mode(),
    ):
        for _ in range(200):
            x = F.dropout(torch.ones(N), 0.5)
            recoup.evict(x)
            x.sum()


FORKS = """
import threading
import torch, torch.nn.functional as F
import recoup

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 6
    def __getitem__(self, i):
        torch.manual_seed(i)
        x = torch.rand(4096)
        return F.dropout(x, 0.5) + torch.randn(4096)

def batches(workers):
    return list(torch.utils.data.DataLoader(Data(), num_workers=workers, batch_size=2))

plain = batches(0)
stop = []
def draw():
    while not stop:
        F.dropout(torch.ones(100_000), 0.5)
        torch.rand(1)
with recoup.budget("256MiB", options=recoup.Options(small_result_bytes=0)):
    ys = [F.dropout(torch.ones(4096), 0.5) for _ in range(4)]
    refs = [y.clone() for y in ys]
    threads = [threading.Thread(target=draw) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        for y in ys:
            recoup.evict(y)
        assert all(map(torch.equal, plain, batches(2)))
        assert all(map(torch.equal, ys, refs))
    stop.append(1)
    for thread in threads:
        thread.join()
print("done")
"""


def test_workers_are_forked_while_a_thread_draws() -> None:
    worker = subprocess.run(
        [sys.executable, "-c", FORKS],
        capture_output=True,
        text=True,
        timeout=110,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        cwd=Path(__file__).parent,
    )
    assert worker.stdout == "done\n", worker.stderr[-2000:]


def test_a_training_under_pressure_while_threads_draw() -> None:
    def train(hand: Hand) -> object:
        net = torch.nn.Sequential(
            *(
                torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Dropout(0.2), torch.nn.Tanh())
                for _ in range(6)
            )
        )
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for _ in range(3):
            loss = net(torch.randn(256, 64)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return [p.detach().clone() for p in net.parameters()]

    # They have their own generators: the program's numbers are those of a process without them.
    def augment() -> None:
        torch.rand(64, generator=torch.Generator().manual_seed(1))

    with threads_that(augment, augment):
        stats = both(train, budget=peak(train) * 6 // 10)
    assert stats.replays > 0
