"""Storages from outside of the pool are freed as early as in plain PyTorch."""

import copy
import gc
import io
import os
import pickle
import random
import resource
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import recoup
from conftest import bits_equal
from recoup.bench.flat_options import split

N = 1 << 16  # float elements of a tensor: 256 KiB


def _from_numpy() -> tuple[torch.Tensor, list[weakref.ref[numpy.ndarray]]]:
    array = numpy.ones(N, dtype=numpy.float32)
    return torch.from_numpy(array), [weakref.ref(array)]


@pytest.mark.parametrize("uses", [0, 1, 20])
def test_an_array_dies_with_its_last_tensor(uses: int) -> None:
    with recoup.budget("256MiB") as run:
        tensor, arrays = _from_numpy()
        for _ in range(uses):
            result = tensor * 2
        assert arrays[0]() is not None
        del tensor
        assert arrays[0]() is None, "no op in between: it dies when the program drops it"
        if uses:
            assert bits_equal(result, torch.full((N,), 2.0))
        run.check()


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    return copy.deepcopy(tensor)


def _pickled(tensor: torch.Tensor) -> torch.Tensor:
    return pickle.loads(pickle.dumps(tensor))


def _loaded(tensor: torch.Tensor) -> torch.Tensor:
    buffer = io.BytesIO()
    torch.save(tensor, buffer)
    buffer.seek(0)
    return torch.load(buffer)


def _of_storage(tensor: torch.Tensor) -> torch.Tensor:
    storage = torch.UntypedStorage(tensor.nbytes)
    return torch.empty(0).set_(storage, 0, tensor.shape).copy_(tensor)


def _of_array(tensor: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(tensor.detach().clone().numpy().copy())


MAKERS = [_copied, _pickled, _loaded, _of_storage, _of_array]


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_copies_do_not_fill_the_budget(make: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Copies of 16 MiB, each used and dropped: memory and charge are those of a few copies."""
    size = 16 << 20
    rounds = 40
    source = torch.ones(size // 4)
    with recoup.budget("2GiB") as run:
        sums = []
        for i in range(rounds):
            made = make(source)
            sums.append((made * 2).sum())
            del made
            if i == 3:
                before = _resident_bytes()
        assert _resident_bytes() - before < 8 * size
        assert run.stats().peak_bytes < 10 * size
        assert run.stats().external_bytes <= 3 * size
        assert bits_equal(torch.stack(sums), torch.full((rounds,), 2.0 * size / 4))
        run.check()


def test_a_replayable_result_keeps_its_input_alive() -> None:
    source = torch.linspace(-1, 1, N)
    with recoup.budget("64MiB") as run:
        kept = copy.deepcopy(source)
        result = kept.sin().exp()
        del kept
        gc.collect()
        assert recoup.evict(result)
        assert bits_equal(result, source.sin().exp())
        run.check()


def test_an_input_is_freed_with_its_last_result() -> None:
    source = torch.ones(4 * N)
    with recoup.budget("64MiB") as run:
        kept = copy.deepcopy(source)
        result = kept * 2
        del kept
        before = run.stats().external_bytes
        del result
        assert run.stats().external_bytes <= before - source.nbytes
        run.check()


def test_a_dead_storage_is_not_charged_when_the_next_is_made() -> None:
    with recoup.budget("3MiB") as run:
        for _ in range(50):
            tensor = torch.from_numpy(numpy.ones(N, dtype=numpy.float32))
            tensor.mul(3).sum().item()
        assert run.stats().peak_bytes < 4 * tensor.nbytes
        run.check()


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def _mappings() -> int:
    return Path("/proc/self/maps").read_text().count("\n")


@pytest.fixture
def few_descriptors() -> object:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.serial
@pytest.mark.parametrize("grad", [False, True])
def test_batches_of_workers_are_freed(few_descriptors: object, grad: bool) -> None:
    """More batches than the process may have file descriptors, in evaluation and in training."""
    model = torch.nn.Linear(64, 10)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    batches = 1200
    loader = DataLoader(TensorDataset(torch.randn(batches, 64)), batch_size=1, num_workers=1)
    with recoup.budget("1GiB") as run, torch.set_grad_enabled(grad):
        start = _descriptors(), _mappings()
        most = [0, 0]
        for i, (x,) in enumerate(loader):
            loss = model(x).square().mean()
            if grad and i % 100 == 0:  # mostly without a step, as in gradient accumulation
                loss.backward()
                optimizer.step()
            if i % 50 == 0:
                most = [max(most[0], _descriptors()), max(most[1], _mappings())]
        assert most[0] < start[0] + 64
        assert most[1] < start[1] + 200
        run.check()


def _make_and_drop(seed: int, wrong: list[object]) -> None:
    """Storages of each kind, some of which only their Python object keeps alive."""
    rng = random.Random(seed)
    makers = [
        lambda n: torch.from_numpy(numpy.full(n, seed, dtype=numpy.float32)),
        lambda n: copy.deepcopy(torch.full((n,), float(seed))),
        lambda n: torch.full((n,), float(seed)),
        lambda n: torch.frombuffer(bytearray(4 * n), dtype=torch.float32).add_(seed),
        lambda n: torch.empty(0).set_(torch.UntypedStorage(4 * n), 0, (n,)).fill_(seed),
    ]
    live: list[tuple[torch.Tensor, object]] = []
    for _ in range(150):
        tensor = rng.choice(makers)(rng.choice([64, 4096, 65536]))
        storage = tensor.untyped_storage() if rng.random() < 0.3 else None
        live.append(((tensor * 2).sin(), storage))
        del tensor
        if len(live) > 15:
            result, _ = live.pop(rng.randrange(len(live)))
            if rng.random() < 0.5:
                recoup.evict(result)
            if not bits_equal(result, torch.full(result.shape, 2.0 * seed).sin()):
                wrong.append(result)


@pytest.mark.serial
@pytest.mark.parametrize("options", [{}, {"evict_after_op": True}], ids=str)
def test_threads_make_and_free_storages(options: dict[str, Any]) -> None:
    """A thread that holds the interpreter lock never waits for a thread that needs it."""
    wrong: list[object] = []

    def work(seed: int) -> None:
        with recoup.carry():
            _make_and_drop(seed, wrong)

    with recoup.budget("16MiB", **split(options)) as run:
        threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2, 3)]
        for thread in threads:
            thread.start()
        _make_and_drop(4, wrong)
        for thread in threads:
            thread.join()
        assert not wrong
        run.check()


def test_a_tensor_found_by_a_weak_reference_is_charged_once() -> None:
    """Only lineage keeps the tensor alive before a weak reference finds it."""
    with recoup.budget("64MiB") as run:
        tensor = copy.deepcopy(torch.ones(N))
        result = tensor * 2
        weak = torch.UntypedStorage._new_with_weak_ptr
        handle = tensor.untyped_storage()._weak_ref()
        del tensor
        gc.collect()
        found = weak(handle)
        if found is not None:
            again = torch.empty(0).set_(found, 0, (N,))
            assert bits_equal(again + 1, torch.full((N,), 2.0))
        torch.UntypedStorage._free_weak_ref(handle)
        assert recoup.evict(result)
        assert bits_equal(result, torch.full((N,), 2.0))
        run.check()
