"""Threads of the program: without the scope, joined to it, and at its end."""

import concurrent.futures
import subprocess
import sys
import threading

import pytest
import torch

import recoup
from differential import N, in_thread, made


def test_carry_rematerializes_for_other_threads() -> None:
    with recoup.budget("8MiB", options=recoup.Options(small_result_bytes=0)) as run:
        x = made()
        assert recoup.evict(x)
        (error,) = in_thread(lambda: x.const_data_ptr())  # type: ignore[attr-defined]
        assert "recoup.carry()" in str(error)

        seen: list[float] = []

        def work() -> None:
            with recoup.carry():
                seen.append((x * 2).sum().item())

        assert not in_thread(work)
        assert seen == [(x * 2).sum().item()]
        run.check()


def test_allocations_of_a_carried_thread_are_charged() -> None:
    """Values that a thread of the scope makes are within the budget."""
    with recoup.budget("4MiB") as run:

        @recoup.carry()
        def fill() -> None:
            kept.append(torch.ones(1 << 21))

        kept: list[torch.Tensor] = []
        (error,) = in_thread(fill)
        assert isinstance(error, recoup.OutOfBudgetError)
        run.check()


def test_carry_ends_with_its_block() -> None:
    def work() -> None:
        with recoup.carry():
            pass
        torch.ones(1 << 20)  # not seen by the scope

    with recoup.budget("1MiB"):
        assert not in_thread(work)
    with recoup.carry():  # no effect without a scope
        torch.ones(N)
    assert not recoup._C.active()


def test_threads_may_share_a_scope() -> None:
    """A pool of threads under pressure gives the bits of one thread without a budget."""

    def work(seed: int) -> list[float]:
        x = torch.linspace(-1, 1, 1 << 14) * (seed + 1)
        kept = []
        for _ in range(6):
            x = (x * 1.5).tanh()
            kept.append(x)
        y = x * 0
        for each in reversed(kept):
            y = y + each.exp()
        return list(y.mul_(0.5).tolist())

    plain = [work(seed) for seed in range(24)]
    with (
        recoup.budget("1MiB") as run,
        concurrent.futures.ThreadPoolExecutor(4) as pool,
    ):
        assert list(pool.map(recoup.carry()(work), range(24))) == plain
        run.check()
        assert run.stats().evictions > 0


def test_a_carried_thread_continues_after_the_scope() -> None:
    """The scope may end while a thread that carries it works; the thread loses no value."""
    go = threading.Event()
    results: list[torch.Tensor] = []

    def work() -> None:
        with recoup.carry():
            while not go.is_set():
                results.append(torch.full((N,), float(len(results))) * 2)
                if len(results) > 100:  # live values must fit at the end of a scope
                    del results[:50]

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(10):
            with recoup.budget("1MiB", options=recoup.Options(small_result_bytes=0)):
                torch.ones(N).add(1).sum()
    finally:
        go.set()
        thread.join()
    assert all(torch.equal(r, r[0].expand(N)) for r in results)


def test_a_failed_exit_with_carried_threads_loses_no_value() -> None:
    """A thread that carries the scope is between two ops when the scope is suspended."""
    for _ in range(5):
        kept: list[torch.Tensor] = []
        stop = threading.Event()
        wrong: list[str] = []

        def work(kept: list[torch.Tensor], stop: threading.Event, wrong: list[str]) -> None:
            with recoup.carry():
                while not stop.is_set():
                    for i in range(len(kept)):
                        try:
                            if (kept[i] * 1).sum().item() != i * N:
                                wrong.append(f"{i} has other bits")
                        except RuntimeError as error:  # evicted, and the scope is suspended
                            if "internal error" in str(error):
                                wrong.append(str(error))

        threads = [threading.Thread(target=work, args=(kept, stop, wrong)) for _ in range(2)]
        with (
            pytest.raises(recoup.OutOfBudgetError),
            recoup.budget("300KiB", options=recoup.Options(small_result_bytes=0)) as run,
        ):
            kept.extend(torch.full((N,), float(i)) for i in range(150))
            for thread in threads:
                thread.start()
        stop.set()
        for thread in threads:
            thread.join()
        run.resume("16MiB")
        assert not wrong, wrong[0]
        assert all(torch.equal(t, torch.full((N,), float(i))) for i, t in enumerate(kept))


_FREEING = """
import threading, torch, recoup
torch.set_num_threads(1)

def drop(tensors):
    while tensors:
        tensors.pop()

for turn in range({turns}):
    tensors = []
    with recoup.budget("64MiB", options=recoup.Options(small_result_bytes=0)) as run:
        tensors.extend(torch.full((256,), 1.0) + 1 for _ in range(4000))
        if turn % 2:
            for tensor in tensors[::2]:
                recoup.evict(tensor)
        threads = [threading.Thread(target=drop, args=(tensors[k::3],)) for k in range(3)]
        del tensors[:]
        for thread in threads:
            thread.start()
        if turn % 3 == 2:
            try:
                raise KeyError
            except KeyError:
                pass
    for thread in threads:
        thread.join()
print("done")
"""


@pytest.mark.parametrize("turns", [30, pytest.param(600, marks=pytest.mark.slow)])
def test_threads_may_free_tensors_during_an_exit(turns: int) -> None:
    program = _FREEING.replace("{turns}", str(turns))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=1200, check=False
    )
    assert done.returncode == 0 and done.stdout == "done\n", done.stderr[-2000:]


# To end, ops of threads that carry the scope need the interpreter lock, and a thread that holds the
# lock (converting a number to a tensor) waits for the end of the scope: each releases its lock
# while it waits. The parent process is the watchdog, because it needs no lock of the interpreter.
_CARRYING = """
import threading, time, torch, recoup
torch.set_num_threads(1)
stop = False
def work():
    with torch.no_grad():
        while not stop:
            with recoup.carry():
                a = torch.randn(32, 64)
                x = [(a * i).sin() for i in range(5)]
def plainly():
    while not stop:
        kept = [torch.ones(300) * i for i in range(5)]
threads = [threading.Thread(target=t) for t in (work, work, work, plainly)]
for t in threads: t.start()
end = time.time() + {seconds}
scopes = 0
while time.time() < end:
    with recoup.budget("8MiB") as run:
        y = torch.ones(100) * 2
    scopes += 1
stop = True
for t in threads: t.join()
assert scopes
print("done")
"""


def test_a_scope_ends_while_threads_carry_it() -> None:
    program = _CARRYING.replace("{seconds}", "4")
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0 and done.stdout == "done\n", done.stderr[-2000:]


def test_other_threads_do_not_see_the_settings_of_a_replay() -> None:
    usual = torch.get_default_dtype(), torch.get_float32_matmul_precision()
    seen: set[object] = set()
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            seen.add((torch.tensor([0.5]).dtype, torch.get_float32_matmul_precision()))

    thread = threading.Thread(target=look)
    with recoup.budget("64MiB") as run:
        try:
            torch.set_default_dtype(torch.float64)
            torch.set_float32_matmul_precision("medium")
            a = torch.linspace(-1, 1, 400 * 400).view(400, 400)
            x = a @ a
        finally:
            torch.set_default_dtype(usual[0])
            torch.set_float32_matmul_precision(usual[1])
        thread.start()
        for _ in range(20):
            assert recoup.evict(x)
            x.sum()
        stop.set()
        thread.join()
    assert run.stats().replays >= 20
    assert seen == {usual}


def test_a_scope_can_be_left_after_another_thread_tried_to() -> None:
    scope = recoup.budget("8MiB")
    run = scope.__enter__()
    x = made()
    assert recoup.evict(x)
    (error,) = in_thread(lambda: scope.__exit__(None, None, None))
    assert "must be left on the thread that entered it" in str(error)
    scope.__exit__(None, None, None)
    assert recoup.is_resident(x) and not run._is_open


def test_threads_fill_parts_of_uninitialized_memory() -> None:
    parts = 8
    with recoup.budget("64MiB"):

        @recoup.carry()
        def fill(rows: torch.Tensor, number: int, start: threading.Barrier) -> None:
            start.wait()
            rows.fill_(number)

        for _ in range(50):
            memory = torch.empty(parts * 64, 64)
            start = threading.Barrier(parts)
            threads = [
                threading.Thread(target=fill, args=(rows, number, start))
                for number, rows in enumerate(memory.chunk(parts))
            ]
            for each in threads:
                each.start()
            for each in threads:
                each.join()
            assert torch.equal(memory[::64, 0], torch.arange(parts, dtype=torch.float32))
            assert recoup.evict(memory)
            assert torch.equal(memory[::64, 0], torch.arange(parts, dtype=torch.float32))
