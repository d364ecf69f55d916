"""Tensors from before a scope with a spill tier: which of them are imported into its pool, so that
their old memory is freed.
"""

import ctypes
import gc
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import recoup
from test_spill import OPTIMIZERS, STEPS, WIDTH

pytestmark = pytest.mark.serial

KEPT: list[Any] = []  # a variable of a module: the garbage collector finds it


@pytest.fixture(autouse=True)
def _let_go() -> Any:
    yield
    KEPT.clear()


def make(optimizer: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    layers = [layer for _ in range(5) for layer in (nn.Linear(WIDTH, WIDTH), nn.GELU())]
    model = nn.Sequential(*layers)
    return model, OPTIMIZERS[optimizer](model.parameters())


def steps(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    chance = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        loss = model(torch.randn(32, WIDTH, generator=chance)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def left_by(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    states = [value for state in optimizer.state.values() for value in state.values()]
    return [tensor.detach().clone() for tensor in (*model.parameters(), *states)]


@pytest.mark.parametrize("trained_before", [False, True])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_model_from_outside_is_trained_below_its_size(
    optimizer: str, trained_before: bool
) -> None:
    def program(budget: Callable[[], Any], end: Callable[[Any], None]) -> list[torch.Tensor]:
        model, how = make(optimizer)
        if trained_before:
            steps(model, how)
            how.zero_grad()
        with budget() as run:
            steps(model, how)
            end(run)
        return left_by(model, how)

    peaks: list[Any] = []
    plain = program(lambda: recoup.budget("1GiB"), peaks.append)
    budget = peaks[0].stats().peak_bytes // 4
    runs: list[Any] = []

    def finish(run: Any) -> None:
        runs.append((run.stats(), run.report()))
        run.set_budget("1GiB")

    got = program(lambda: recoup.budget(budget, spill="1GiB"), finish)
    assert all(torch.equal(a, b) for a, b in zip(plain, got, strict=True))
    stats, report = runs[0]
    assert stats.peak_bytes <= budget
    assert stats.imports >= 5 and stats.external_bytes < budget // 4
    assert "imported into the pool" in report


def test_without_a_spill_tier_nothing_is_imported() -> None:
    model, how = make("adamw")
    with recoup.budget("1GiB") as run:
        steps(model, how)
    assert run.stats().imports == 0


SIZE = 1 << 18  # elements: 1 MiB


def press() -> None:
    """Fills the budget while no op reads older tensors."""
    made = [torch.ones(SIZE) for _ in range(9)]
    assert sum(each[0].item() for each in made) == 9


def numpys(tensor: torch.Tensor) -> Any:
    return tensor.numpy()


def of_a_detached(tensor: torch.Tensor) -> Any:
    return tensor.detach()[: SIZE // 2].numpy()


def memory_of(tensor: torch.Tensor) -> Any:
    return memoryview(tensor.numpy())  # type: ignore[arg-type]


def interface_of(tensor: torch.Tensor) -> Any:
    return np.asarray(tensor)


def capsule_of(tensor: torch.Tensor) -> Any:
    return torch.utils.dlpack.to_dlpack(tensor)  # type: ignore[attr-defined]


def numpy_of_a_capsule(tensor: torch.Tensor) -> Any:
    return np.from_dlpack(tensor)


def storage_of(tensor: torch.Tensor) -> Any:
    return tensor.untyped_storage()


def object_array(tensor: torch.Tensor) -> Any:
    array = np.empty(1, dtype=object)
    array[0] = tensor
    return array


def numpy_of_an_alias(tensor: torch.Tensor) -> Any:
    return tensor.view(2, -1).T.numpy()


def graph_of(tensor: torch.Tensor) -> Any:
    return (tensor * torch.ones((), requires_grad=True)).sum()


def seen(held: Any) -> Any:
    """The bits that a holder of the memory sees."""
    if isinstance(held, torch.UntypedStorage):
        return bytes(held)
    if isinstance(held, torch.Tensor):
        return held.item()
    if type(held).__name__ == "PyCapsule":
        return torch.utils.dlpack.from_dlpack(held).sum().item()  # type: ignore[attr-defined]
    if isinstance(held, memoryview):
        return bytes(held)
    if held.dtype == object:
        return held[0].sum().item()
    return held.tobytes()


@pytest.mark.parametrize(
    "hold",
    [
        numpys, of_a_detached, memory_of, interface_of, capsule_of, numpy_of_a_capsule,
        storage_of, object_array, numpy_of_an_alias, graph_of,
    ],
)  # fmt: skip
def test_holders_of_the_old_address_see_every_write(hold: Callable[[torch.Tensor], Any]) -> None:
    def program(scope: Any) -> Any:
        torch.manual_seed(0)
        KEPT[:] = [torch.randn(SIZE), None, torch.randn(SIZE)]
        KEPT[1] = hold(KEPT[0])
        with scope as run:
            others = [torch.randn(SIZE) for _ in range(12)]
            KEPT[0].mul_(2)
            KEPT[2].mul_(3)
            others += [torch.randn(SIZE) * 2 for _ in range(12)]
            KEPT[0].add_(1)
            total = sum(other.double().sum().item() for other in others)
            if run is not None:
                run.set_budget("1GiB")
        KEPT[0].sub_(3)
        return total, KEPT[0].double().sum().item(), KEPT[2].double().sum().item(), seen(KEPT[1])

    class Nothing:
        def __enter__(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...

    plain = program(Nothing())
    scope = recoup.budget("8MiB", spill="256MiB")
    assert program(scope) == plain


def test_only_storages_without_other_holders_are_imported() -> None:
    KEPT[:] = [torch.ones(SIZE), torch.ones(SIZE), torch.ones(SIZE)]
    array = KEPT[1].numpy()
    mine = KEPT[2]  # a local variable
    with recoup.budget("8MiB", spill="256MiB") as run:
        others = [tensor + k for tensor in KEPT for k in range(5)]
        press()
        assert run.stats().imports == 1
        assert {row["by"] for row in run._engine.pinned()} >= {"made outside the scope"}
        run.set_budget("1GiB")
    array[0] = 5
    assert KEPT[1][0].item() == 5 and mine.sum().item() == SIZE
    assert [other[1].item() for other in others] == [1.0 + k for k in range(5)] * 3


@pytest.mark.parametrize("by", ["two names", "detach", "view"])
def test_tensors_that_share_a_storage_still_share_it(by: str) -> None:
    KEPT[:] = [torch.zeros(SIZE)]
    KEPT.append({"two names": KEPT[0], "detach": KEPT[0].detach()}.get(by, KEPT[0].view(2, -1)))
    with recoup.budget("8MiB", spill="256MiB") as run:
        others = [KEPT[1].reshape(-1) + k for k in range(12)]
        press()
        assert run.stats().imports == (by != "view")  # a view holds its base, which is not examined
        KEPT[0].add_(1)
        assert KEPT[1].sum().item() == SIZE
        run.set_budget("1GiB")
    KEPT[1].add_(1)
    assert KEPT[0].sum().item() == 2 * SIZE
    assert [other[0].item() for other in others] == [float(k) for k in range(12)]


def test_an_address_taken_inside_the_scope_is_that_of_the_imported_tensor() -> None:
    KEPT[:] = [torch.zeros(SIZE)]
    with recoup.budget("8MiB", spill="256MiB") as run:
        others = [KEPT[0] + k for k in range(12)]
        press()
        assert run.stats().imports == 1
        array = KEPT[0].numpy()
        pointer = ctypes.cast(KEPT[0].data_ptr(), ctypes.POINTER(ctypes.c_float))
        others += [torch.ones(SIZE) for _ in range(12)]
        KEPT[0].add_(7)
        assert array[1] == 7 and pointer[1] == 7
        array[2] = 9
        assert KEPT[0][2].item() == 9
        run.set_budget("1GiB")
    assert len(others) == 24 and KEPT[0].sum().item() == 7 * SIZE + 2


def test_a_tensor_that_was_resized_is_not_imported_from_its_old_memory() -> None:
    """Ops that have nothing to do with it would fail, each time that memory is short."""
    KEPT.append(torch.ones(1 << 18))
    with recoup.budget("8MiB", spill="64MiB") as run:
        KEPT[0].sum()
        KEPT[0].resize_(1 << 19)
        made = [torch.full((1 << 18,), float(i)) for i in range(9)]
        assert all(bool((each == i).all()) for i, each in enumerate(made))
        assert bool((KEPT[0][: 1 << 18] == 1).all())
        del made
        run.check()


def test_an_imported_model_that_dies_in_the_scope_is_freed() -> None:
    KEPT[:] = [torch.ones(SIZE) for _ in range(3)]
    with recoup.budget("8MiB", spill="256MiB") as run:
        others = [tensor + k for tensor in KEPT for k in range(4)]
        press()
        assert run.stats().imports == 3
        KEPT.clear()
        gc.collect()
        del others
        run._engine.check()
        assert run.stats().resident_bytes < 4 * SIZE


@pytest.mark.parametrize(("layers", "width"), [(16, 2048), (1024, 256)])
def test_the_old_memory_of_an_imported_model_is_freed(
    tmp_path: Path, layers: int, width: int
) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import torch, recoup\n"
        "def resident():\n"
        "    return int(open('/proc/self/statm').read().split()[1]) * 4096 >> 20\n"
        "with recoup.budget('64MiB', spill='1GiB'):\n"
        "    torch.ones(1 << 20).add_(1)\n"
        f"model = torch.nn.Sequential(*[torch.nn.Linear({width}, {width}, bias=False)\n"
        f"                              for _ in range({layers})])\n"  # 256 MiB
        "with torch.no_grad():\n"
        f"    plain = model(torch.ones(1, {width}))\n"
        "    before = resident()\n"
        "    with recoup.budget('64MiB', spill='1GiB') as run:\n"
        f"        same = torch.equal(model(torch.ones(1, {width})), plain)\n"
        "        inside = resident()\n"
        "        run.set_budget('1GiB')\n"
        "print(same, before - inside > 150, (before, inside))\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300)
    assert done.stdout.startswith("True True"), (done.stdout, done.stderr)


METHOD = torch.Tensor.numpy  # the original, before any scope wraps it


def test_an_address_taken_before_the_first_op_prevents_the_import() -> None:
    KEPT[:] = [torch.zeros(SIZE), torch.zeros(SIZE)]
    with recoup.budget("8MiB", spill="256MiB") as run:
        array = METHOD(KEPT[0])
        press()
        KEPT[0].add_(1)
        KEPT[1].add_(1)
        press()
        assert run.stats().imports == 1
        assert array[5] == 1
        array[6] = 8
        assert KEPT[0][6].item() == 8


def test_a_pin_prevents_the_import() -> None:
    KEPT[:] = [torch.zeros(SIZE), torch.zeros(SIZE)]
    with recoup.budget("8MiB", spill="256MiB") as run, recoup.pin(KEPT[0]):
        address = KEPT[0].data_ptr()
        press()
        KEPT[0].add_(1)
        KEPT[1].add_(1)
        press()
        assert run.stats().imports == 1
        assert recoup.is_resident(KEPT[0]) and KEPT[0].data_ptr() == address


@pytest.mark.parametrize("when", ["before", "inside", "never"])
def test_nothing_is_imported_while_another_thread_runs(when: str) -> None:
    """Kernels of the other thread would read freed memory, which ended the process."""
    torch.manual_seed(0)
    KEPT[:] = [nn.Sequential(*[nn.Linear(512, 512) for _ in range(24)])]
    x = torch.ones(1, 512)
    with torch.no_grad():
        plain = KEPT[0](x)
    over = threading.Event()
    wrong = []

    def serve() -> None:
        while not over.is_set():
            with torch.no_grad():
                if not torch.equal(KEPT[0](x), plain):
                    wrong.append(1)

    other = threading.Thread(target=serve if when != "never" else over.wait)
    if when == "before":
        other.start()
    try:
        with (
            warnings.catch_warnings(record=True) as warned,
            recoup.budget("30MiB", spill="256MiB") as run,
            torch.no_grad(),
        ):
            if when == "inside":
                other.start()
            for _ in range(3):
                assert torch.equal(KEPT[0](x), plain)
                for _ in range(20):
                    press()
            assert (run.stats().imports > 0) == (when == "never")
            run.set_budget("1GiB")
        said = [str(each.message) for each in warned]
        assert any("cannot be spilled" in each and other.name in each for each in said) == (
            when == "before"
        )
    finally:
        over.set()
        if when != "never":
            other.join()
    assert wrong == []
