"""Threads that an unchanged program starts inside a scope belong to it."""

import _thread
import concurrent.futures
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import recoup
from differential import Hand, N, both, made, peak
from recoup.bench.flat_options import split

ROWS = 512


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    import faulthandler

    # pytest has replaced sys.stderr.
    faulthandler.dump_traceback_later(300, exit=True, file=sys.__stderr__)
    yield
    faulthandler.cancel_dump_traceback_later()


def train(batches: Callable[[Tensor], Iterator[Tensor]], hand: Hand) -> Any:
    """Trains a net on batches from a table of the scope, most of which is evicted meanwhile."""
    table = torch.linspace(-1, 1, 2 * ROWS * 32).view(2 * ROWS, 32).mul(1.5).tanh()
    hand.try_evict(table)
    net = nn.Sequential(*(layer for _ in range(16) for layer in (nn.Linear(32, 32), nn.Tanh())))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    losses = []
    for batch in batches(table):
        hand.try_evict(table)
        loss = (net(batch) - batch).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses, list(net.parameters())


def batch_of(table: Tensor, index: int) -> Tensor:
    return table[index % 2 :: 2].sin().add(table.mean(0)).mul(0.5)


def prefetched(table: Tensor) -> Iterator[Tensor]:
    """As in many programs: a thread prepares batches, at most two ahead."""
    ready: queue.Queue[Tensor | None] = queue.Queue(2)

    def produce() -> None:
        try:
            for index in range(12):
                ready.put(batch_of(table, index))
        finally:
            ready.put(None)

    thread = threading.Thread(target=produce, daemon=True)
    thread.start()
    while (batch := ready.get()) is not None:
        yield batch
    thread.join()


def pooled(table: Tensor) -> Iterator[Tensor]:
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        yield from pool.map(lambda index: batch_of(table, index), range(12))


def by_a_raw_thread(table: Tensor) -> Iterator[Tensor]:
    ready: queue.Queue[Tensor] = queue.Queue()
    for index in range(12):
        _thread.start_new_thread(lambda index: ready.put(batch_of(table, index)), (index,))
        yield ready.get()


def by_threads_of_threads(table: Tensor) -> Iterator[Tensor]:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        for _ in range(2):
            yield from pool.submit(lambda: list(pooled(table))[::2]).result()


LOADERS = {
    "a prefetch thread": prefetched,
    "a pool": pooled,
    "a raw thread": by_a_raw_thread,
    "threads of threads": by_threads_of_threads,
}


@pytest.mark.parametrize("intra_op", [1, 2])
@pytest.mark.parametrize("percent", [100, 60, 40])
@pytest.mark.parametrize("loader", LOADERS)
def test_an_unchanged_program_has_the_bits_of_plain_pytorch(
    loader: str, percent: int, intra_op: int
) -> None:
    def program(hand: Hand) -> Any:
        return train(LOADERS[loader], hand)

    usual = torch.get_num_threads()
    torch.set_num_threads(intra_op)
    try:
        budget = peak(program) * percent // 100
        stats = both(program, budget)
    finally:
        torch.set_num_threads(usual)
    assert stats.evictions > 0 and stats.replays > 0
    assert stats.peak_bytes <= budget


@pytest.mark.parametrize("spill", [None, "64MiB"])
def test_a_simulation_makes_the_decisions_of_the_live_run(
    spill: str | None, tmp_path: Path
) -> None:
    """Each thread ends its ops before the main thread goes on, so the order is the same again."""

    def program() -> None:
        torch.manual_seed(0)
        train(by_a_raw_thread, Hand())

    path = tmp_path / "run.rtrace"
    with recoup.budget("1GiB", trace=path):
        program()
    trace = recoup.Trace.read(path)
    budget = trace.unbudgeted_peak_bytes() * (6 if spill is None else 3) // 10
    options: dict[str, Any] = {"policy": "recoup", "cost_model": "bytes", "spill": spill}
    with recoup.budget(budget, profile="decisions", **split(options)) as run:
        program()
    simulation = trace.simulate(
        budget, recoup.SimulationOptions(max_time_ratio=0, **options), decisions=True
    )
    assert simulation.status == "ok"
    assert run.decisions() and simulation.decisions == run.decisions()


def test_what_a_started_thread_makes_is_charged() -> None:
    errors: list[BaseException] = []

    def fill() -> None:
        try:
            kept.append(torch.ones(1 << 21))
        except recoup.OutOfBudgetError as error:
            errors.append(error)

    kept: list[Tensor] = []
    with recoup.budget("4MiB") as run:
        thread = threading.Thread(target=fill)
        thread.start()
        thread.join()
        run.check()
    assert errors and not kept


def test_a_thread_belongs_if_the_one_that_starts_it_does() -> None:
    """A thread from before the scope is outside, and so is one that it starts."""
    seen: dict[str, bool] = {}
    go = threading.Event()

    def note(name: str) -> None:
        seen[name] = recoup._C.carries()

    def start(name: str) -> None:
        thread = threading.Thread(target=note, args=[name])
        thread.start()
        thread.join()

    def from_before() -> None:
        go.wait()
        note("from before")
        start("started by it")

    before = threading.Thread(target=from_before)
    before.start()
    with recoup.budget("8MiB"):
        start("inside")
        go.set()
        before.join()
    start("after")
    assert seen == {"inside": True, "from before": False, "started by it": False, "after": False}


def test_a_pool_that_outlives_its_scope_works_in_the_next_one() -> None:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        for _ in range(3):
            with recoup.budget("8MiB", options=recoup.Options(small_result_bytes=0)) as run:
                x = made()
                assert recoup.evict(x)
                assert torch.equal(pool.submit(lambda x=x: x * 2).result(), made() * 2)
                run.check()
            assert run.stats().replays > 0
            assert torch.equal(pool.submit(lambda x=x: x * 3).result(), made() * 3)


def test_a_thread_of_a_scope_may_have_a_scope_of_its_own() -> None:
    """Afterwards it belongs to the scopes of others as before."""

    def own() -> Tensor:
        with recoup.budget("8MiB"):
            return made() * 5

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        with recoup.budget("8MiB"):
            assert pool.submit(recoup._C.carries).result()
        assert torch.equal(pool.submit(own).result(), made() * 5)
        with recoup.budget("8MiB"):
            x = made()
            assert recoup.evict(x)
            assert torch.equal(pool.submit(lambda: x * 2).result(), made() * 2)
    assert not recoup._C.carries()


def test_a_pool_from_before_may_start_its_threads_inside() -> None:
    with concurrent.futures.ThreadPoolExecutor(1) as pool, recoup.budget("8MiB"):
        x = made()
        assert recoup.evict(x)
        assert torch.equal(pool.submit(lambda: x * 2).result(), made() * 2)


def test_a_thread_may_outlive_the_scope() -> None:
    """It works on while scopes end and begin, and each of its results is right."""
    stop = threading.Event()
    wrong: list[object] = []

    def work() -> None:
        kept: list[Tensor] = []
        try:
            while not stop.is_set():
                kept.append(torch.full((N,), float(len(kept))).mul(2))
                if len(kept) == 20:
                    wrong.extend(k for k, x in enumerate(kept) if x.sum().item() != 2.0 * k * N)
                    del kept[:]
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    try:
        for turn in range(20):
            with recoup.budget("1MiB", options=recoup.Options(small_result_bytes=0)) as run:
                if turn == 0:
                    for thread in threads:
                        thread.start()
                kept = [torch.ones(N).add(k) for k in range(60)]
                assert all(x[0] == k + 1 for k, x in enumerate(kept))
                del kept
                run.check()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not wrong, wrong[0]


def test_an_error_in_a_started_thread_reaches_the_program() -> None:
    """A thread that fails holds no turn, and the scope goes on."""
    seen: list[BaseException | None] = []
    hook, threading.excepthook = threading.excepthook, lambda args: seen.append(args.exc_value)
    try:
        with recoup.budget("8MiB") as run:
            x = made()
            for fails in (lambda: x @ torch.ones(3), lambda: x.view(7), lambda: {}["x"]):
                assert recoup.evict(x)
                thread = threading.Thread(target=fails)
                thread.start()
                thread.join()
                assert torch.equal(x * 1, made())
            run.check()
    finally:
        threading.excepthook = hook
    assert [type(each) for each in seen] == [RuntimeError, RuntimeError, KeyError]


def test_a_child_of_a_fork_works_while_a_thread_runs_ops() -> None:
    """The child has no such thread, and goes on with its copy of the scope."""
    stop = threading.Event()
    failed = []

    def work() -> None:
        y = torch.ones(N)
        while not stop.is_set():
            y = y.mul(1.0).add(0.0)

    with recoup.budget("2MiB", options=recoup.Options(small_result_bytes=0)) as run:
        xs = [torch.full((N,), float(k)).mul(2) for k in range(8)]
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(30):
                for x in xs:
                    recoup.evict(x)
                child = os.fork()
                if child == 0:
                    right = all(x.add(1).sum() == (2.0 * k + 1) * N for k, x in enumerate(xs))
                    os._exit(0 if right else 3)
                failed.append(_exit_code(child))
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        run.check()
    assert not any(failed), failed


def _exit_code(child: int) -> int:
    """Of a process, which is killed if it does not end."""
    for _ in range(600):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# ---- programs in processes of their own ----

_INTERRUPTED = """
import os, queue, signal, sys, threading, torch, recoup
torch.set_num_threads(1)
ready = queue.Queue(1)
alive = threading.Event()
def produce():
    for i in range(1000):
        ready.put(x.mul(i).sum())
        alive.set()
with recoup.budget("1MiB", options=recoup.Options(small_result_bytes=0)) as run:
    x = torch.arange(4096.).mul(2)
    recoup.evict(x)
    threading.Thread(target=produce, daemon=True).start()
    alive.wait()
    try:
        threading.Timer({delay}, os.kill, (os.getpid(), signal.SIGINT)).start()
        {waits}
    except KeyboardInterrupt:
        print("interrupted", flush=True)
assert x[1].item() == 2 and not recoup._C.active()
print("done", flush=True)
os._exit(0)  # plain PyTorch may abort if a daemon thread runs an op when the interpreter ends
"""


@pytest.mark.parametrize(
    "waits",
    ["queue.Queue().get()", "while True: torch.ones(300).mul(2)", "while True: ready.get()"],
)
@pytest.mark.parametrize("delay", [0.02, 0.1])
def test_ctrl_c_while_a_prefetch_thread_waits(waits: str, delay: float) -> None:
    program = _INTERRUPTED.replace("{waits}", waits).replace("{delay}", str(delay))
    done = _run(program)
    assert done.returncode == 0 and done.stdout == "interrupted\ndone\n", done.stderr[-2000:]


def _run(program: str, *command: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, *(command or ("-c", program))]
    return subprocess.run(words, capture_output=True, text=True, timeout=100, check=False)


# The main thread waits forever for a thread outside of the scope, which hides its errors.
_WAITS_FOREVER = """
import ctypes, queue, sys, threading, torch, recoup

def program():
    values = [torch.full((4096,), float(i)).mul(2) for i in range(100)]
    results = queue.Queue()
    def work(*_):
        recoup._C.carry(False)
        for value in values:
            try:
                value.sum()
            except RuntimeError:
                pass
        print("over", file=sys.stderr, flush=True)
    {start}
    results.get()

{scope}program()
"""
_STARTS = {
    "Thread": "threading.Thread(target=work, name='loader').start()",
    "pthread_create": "run = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(work); "
    "ctypes.CDLL(None).pthread_create("
    "ctypes.byref(ctypes.c_ulong()), None, run, None)",
}


@pytest.mark.parametrize("start", _STARTS)
@pytest.mark.parametrize("command", [True, False], ids=["recoup run", "python"])
def test_a_hidden_error_is_printed_while_the_program_waits(
    start: str, command: bool, tmp_path: Path
) -> None:
    scope = "" if command else "with recoup.budget('1MiB'): "
    program = _WAITS_FOREVER.replace("{start}", _STARTS[start]).replace("{scope}", scope)
    (tmp_path / "program.py").write_text(program)
    words = ["-m", "recoup", "run", "--budget", "1MiB"] if command else []
    lines: list[str] = []
    with subprocess.Popen(
        [sys.executable, *words, str(tmp_path / "program.py")], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            lines.append(line)
            if line == "over\n":
                break
        assert process.poll() is None, "".join(lines)
        process.kill()
    said = [line for line in lines if "recoup.carry():" in line]
    assert len(said) == 1, lines
    assert ("recoup run: " if command else "RecoupWarning: recoup: ") in said[0]
    assert ("thread 'loader' is outside" in said[0]) == (start == "Thread")
