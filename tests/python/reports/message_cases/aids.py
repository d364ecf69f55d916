"""What the programs of the cases may use in addition to recoup and torch."""

import contextlib
import gc as gc
import os as os
import resource as resource
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import recoup
from made_up_machine import made_up, version_2
from tier_file import file_of_the_tier


def on_a_thread(function: Callable[[], Any]) -> None:
    """Runs it on a thread without a scope, and raises here what it raises."""
    raised: list[BaseException] = []

    def run() -> None:
        recoup._C.carry(False)
        try:
            function()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, name="worker")
    thread.start()
    thread.join()
    if raised:
        raise raised[0]


def halves() -> torch.Tensor:
    """A value that can be computed again."""
    return torch.arange(4096.0).mul(0.5)


def suspended(base: torch.Tensor | None = None) -> tuple[Any, list[torch.Tensor]]:
    """A scope whose exit did not fit: its run, and what the program has of it."""
    base = torch.arange(float(1 << 18)) if base is None else base
    run, made = None, []
    try:
        with recoup.budget("8MiB", options=recoup.Options(small_result_bytes=0)) as run:
            made = [base.mul(i) for i in range(12)]
    except recoup.OutOfBudgetError:
        pass
    return run, made


def changed(number: int) -> torch.Tensor:
    """1 MiB that cannot be computed again."""
    made = torch.full((1 << 18,), float(number))
    made.sum()  # what is changed after it was read is not recomputable
    return made.add_(torch.ones(1)).add_(torch.ones(1))


def first_evicted(tensors: list[torch.Tensor]) -> torch.Tensor:
    return next(each for each in tensors if not recoup.is_resident(each))


def machine_with(available: str) -> None:
    """From now on recoup finds a machine of 64 GiB with so much that is free."""
    size = recoup._memory.sizes.parse_bytes(available)
    recoup._memory.machine._roots = made_up(Path("machine").absolute(), available=size)


def cgroup_with(limit: object) -> None:
    """The same, in a cgroup with a limit."""
    roots = made_up(Path("machine").absolute(), cgroup="0::/job")
    version_2(roots, "job", limit, 5)
    recoup._memory.machine._roots = roots


@contextlib.contextmanager
def thread_at_work(name: str) -> Iterator[None]:
    """Another thread of Python."""
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, name=name)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def in_a_fork(function: Callable[[], Any]) -> None:
    """Runs it in a forked process, and raises here what it raises."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        text = b""
        try:
            function()
        except Exception as error:
            text = f"{type(error).__name__}: {error}".encode()
        os.write(writer, text)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text_of_it = pipe.read()
    os.waitpid(child, 0)
    if text_of_it:
        raise ChildProcessError(text_of_it)


def corrupt_tier() -> None:
    """Changes what is on the disk."""
    path = file_of_the_tier()
    with open(path, "r+b", buffering=0) as file:
        size = os.stat(path).st_size
        for at in range(0, size, 1 << 12):
            file.seek(at)
            file.write(bytes(8))
        os.fsync(file.fileno())


def empty_tier() -> None:
    """Takes away what is on the disk."""
    os.truncate(file_of_the_tier(), 4096)
