"""Functions of PyTorch that read or expose bytes without an op."""

import copy
import gc
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import recoup
from conftest import bits_equal, halves


def saved(value: torch.Tensor, **options: Any) -> torch.Tensor:
    file = io.BytesIO()
    torch.save({"value": value, "view": value.view(64, 64)}, file, **options)
    file.seek(0)
    loaded = torch.load(file)
    assert loaded["view"].is_set_to(loaded["value"].view(64, 64))
    value = loaded["value"]
    return value


READS: dict[str, Callable[[torch.Tensor], Any]] = {
    "tolist": lambda value: value.tolist(),
    "repr": lambda value: torch.tensor(value.tolist()) if repr(value) else None,
    "deepcopy": copy.deepcopy,
    "deepcopy of a parameter": lambda value: copy.deepcopy(torch.nn.Parameter(value)).detach(),
    "deepcopy of a dict": lambda value: copy.deepcopy({"a": value, "b": value})["b"],
    "save": saved,
    # The same storage in another tensor, and a storage: no address is taken.
    "copy": copy.copy,
    "storage": lambda value: value.storage().tolist(),
}
VIEWS: dict[str, Callable[[torch.Tensor], Any]] = {
    "legacy save": lambda value: saved(value, _use_new_zipfile_serialization=False),
    "numpy": lambda value: value.numpy(),
    "numpy, forced": lambda value: value.numpy(force=True),
    "asarray": np.asarray,
    "np.from_dlpack": np.from_dlpack,
    "torch.from_dlpack": torch.from_dlpack,
    "to_dlpack": lambda value: torch.from_dlpack(torch.to_dlpack(value)),
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
    "storage slice": lambda value: (value.untyped_storage()[:4096], value.tolist())[1],
    "apply_": lambda value: value.apply_(lambda x: x),
    "share_memory_": lambda value: value.share_memory_(),
    "data_ptr": lambda value: value.tolist() if value.data_ptr() else None,
}


def as_list(thing: Any) -> list[float]:
    result: list[float] = thing if isinstance(thing, list) else thing.tolist()
    return result


@pytest.mark.parametrize("name", READS)
def test_a_function_that_copies_sees_the_bytes_of_an_evicted_tensor(name: str) -> None:
    want = halves().tolist()
    with recoup.budget("64MiB") as run:
        value = halves()
        assert recoup.evict(value)
        got = READS[name](value)
        escapes = run.stats().escapes
        # A read does not pin the value: it may be evicted again.
        assert recoup.evict(value)
    assert as_list(got) == want
    assert escapes == 0
    assert value.tolist() == want


@pytest.mark.filterwarnings("ignore:TypedStorage")
@pytest.mark.parametrize("name", VIEWS)
def test_a_function_that_exposes_the_address_makes_the_tensor_immovable(name: str) -> None:
    want = halves().tolist()
    with recoup.budget("64MiB") as run:
        value = halves()
        assert recoup.evict(value)
        got = VIEWS[name](value)
        assert run.stats().escapes >= 1
        assert not recoup.evict(value)
        assert as_list(got) == want
    assert value.tolist() == want


def test_an_exposed_copy_is_immovable() -> None:
    want = halves()
    with recoup.budget("64MiB"):
        array = np.from_dlpack(halves(), copy=True)
        forced = torch.complex(halves(), halves()).conj().numpy(force=True)
        # Evicts all evictable tensors.
        for thing in gc.get_objects():
            if type(thing) is torch.Tensor:
                recoup.evict(thing)
        filler = [torch.full((4096,), float(i)) for i in range(64)]
        assert array.tolist() == want.tolist()
        assert forced.imag.tolist() == (-want).tolist()
    assert len(filler) == 64


def test_a_numpy_view_writes_through() -> None:
    with recoup.budget("64MiB"):
        value = halves()
        value.numpy()[0] = 7
        assert value[0].item() == 7
    assert value[0].item() == 7


def test_storages_from_before_the_scope() -> None:
    value = halves()
    storage = value.untyped_storage()
    with recoup.budget("64MiB"):
        assert storage[0] == value.view(torch.uint8)[0].item()
        assert storage.data_ptr() == value.data_ptr()
        storage.fill_(0)
        assert not value.any()
        assert not storage.is_shared()


def test_storages_without_a_tensor() -> None:
    with recoup.budget("64MiB"):
        storage = torch.UntypedStorage(16)
        storage.fill_(3)
        storage[0] = 1
        storage.resize_(8)
        assert list(storage) == [1, *[3] * 7]
        assert list(copy.deepcopy(storage)) == list(storage)


def test_tensors_without_a_storage_are_left_alone() -> None:
    with recoup.budget("64MiB"):
        sparse = torch.eye(3).to_sparse()
        assert bits_equal(copy.deepcopy(sparse), sparse)
        assert torch.empty(3, device="meta").untyped_storage().nbytes() == 12
        with pytest.raises(NotImplementedError):
            sparse.untyped_storage()


def test_wrong_arguments_print_nothing() -> None:
    with recoup.budget("64MiB"):
        for wrong in (torch.Tensor.data_ptr, torch.Tensor.tolist, torch.Tensor.untyped_storage):
            with pytest.raises(TypeError):
                wrong()


def test_saving_with_safetensors_keeps_values_recomputable(tmp_path: Path) -> None:
    file = tmp_path / "saved"
    weight = halves()
    with recoup.budget("64MiB") as run:
        made = halves()
        assert recoup.evict(made)
        save_file({"weight": weight, "made": made}, file)
        assert not recoup.evict(made)  # its address was taken
        results = [weight * 2, made * 2]
        assert all(recoup.evict(each) for each in results)
        assert run.stats().escapes == 0
        loaded = load_file(file)
        assert bits_equal([loaded["weight"], loaded["made"]], [weight, made])
    assert bits_equal(results, [halves() * 2, halves() * 2])


def test_modules_and_optimizers_copy_and_save() -> None:
    def train() -> tuple[Any, Any, Any]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.BatchNorm1d(64))
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(2):
            model(torch.randn(8, 64)).square().sum().backward()
            optimizer.step()
        file = io.BytesIO()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        file.seek(0)
        twin = copy.deepcopy(model)
        twin_state = copy.deepcopy(optimizer.state_dict()["state"])
        return torch.load(file)["model"], dict(twin.state_dict()), twin_state

    want = train()
    with recoup.budget("64MiB"):
        got = train()
    assert bits_equal(got, want)


def empty_of_two_types() -> list[Any]:
    empty = torch.tensor([], dtype=torch.float32)
    other = torch.TypedStorage(wrap_storage=empty.storage().untyped(), dtype=torch.int64)
    return [empty, other]


def storage_before_a_view() -> list[Any]:
    a = torch.randn(1000, dtype=torch.complex128)
    return [a.storage(), a.imag]


def view_before_a_storage() -> list[Any]:
    return storage_before_a_view()[::-1]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("evicts", [False, True])
@pytest.mark.parametrize("make", [empty_of_two_types, storage_before_a_view, view_before_a_storage])
def test_saving_compares_storages_as_plain_pytorch_does(
    make: Callable[[], list[Any]], evicts: bool
) -> None:
    """It refuses two types over the same bytes, unless there are none."""

    def outcome() -> str:
        try:
            torch.save(make(), io.BytesIO())
        except RuntimeError as error:
            return str(error)
        return "saved"

    plain = outcome()
    options = recoup.Options(evict_after_op=evicts, small_result_bytes=0)
    with recoup.budget("64MiB", options=options):
        assert outcome() == plain
