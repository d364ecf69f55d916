"""Weights that are slices of a mapped file: ordinary values, unless storages share bytes."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn

import recoup
from conftest import bits_equal
from recoup.bench.flat_options import split
from recoup.bench.nets.transformer_nets import bert

WIDTH = 128


def make_net() -> nn.Module:
    torch.manual_seed(0)
    layers = [layer for _ in range(8) for layer in (nn.Linear(WIDTH, WIDTH), nn.GELU())]
    return nn.Sequential(*layers)


def as_made(net: nn.Module, folder: Path) -> None:
    pass


def by_torch_load(net: nn.Module, folder: Path) -> None:
    net.load_state_dict(torch.load(folder / "net.pt"), assign=True)


def by_mapping(net: nn.Module, folder: Path) -> None:
    net.load_state_dict(torch.load(folder / "net.pt", mmap=True), assign=True)


def by_safetensors(net: nn.Module, folder: Path) -> None:
    net.load_state_dict(safetensors.torch.load_file(folder / "net.safetensors"), assign=True)


LOADERS = [as_made, by_torch_load, by_mapping, by_safetensors]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    state = make_net().state_dict()
    torch.save(state, tmp_path / "net.pt")
    safetensors.torch.save_file(state, tmp_path / "net.safetensors")
    return tmp_path


def train(net: nn.Module) -> list[torch.Tensor]:
    torch.manual_seed(1)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    losses = []
    for _ in range(3):
        loss = net(torch.randn(2048, WIDTH)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [*losses, *(p.detach() for p in net.parameters())]


@pytest.mark.parametrize("spill", [None, "256MiB"])
@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("load", LOADERS, ids=lambda load: load.__name__)
def test_a_loaded_model_needs_no_more_memory(
    load: Callable[[nn.Module, Path], None],
    inside: bool,
    spill: str | None,
    folder: Path,
) -> None:
    """Each kind of loaded model runs in 40 % of its peak and no tensor escapes."""

    def program() -> list[torch.Tensor]:
        net = make_net()
        load(net, folder)
        return train(net)

    plain = program()
    with recoup.budget("8GiB") as run:
        program()
    options: dict[str, Any] = {} if spill is None else {"spill": spill, "spill_dir": folder}
    budget = run.stats().peak_bytes * 2 // 5
    if inside:
        with recoup.budget(budget, **split(options)) as run:
            assert bits_equal(program(), plain)
    else:
        net = make_net()
        load(net, folder)
        with recoup.budget(budget, **split(options)) as run:
            got = train(net)
        assert bits_equal(got, plain)
    assert run.stats().replays > 0
    assert run.stats().escapes == 0


def mapped(folder: Path, shared: bool = False) -> torch.UntypedStorage:
    file = folder / "bytes"
    if not file.exists():
        file.write_bytes(torch.arange(8192.0).numpy().tobytes())
    return torch.UntypedStorage.from_file(str(file), shared, 8192 * 4)


def over(storage: torch.UntypedStorage) -> torch.Tensor:
    return torch.empty(0).set_(storage, 0, (storage.nbytes() // 4,))


Parts = Callable[[Path], list[torch.Tensor]]


def disjoint(folder: Path) -> list[torch.Tensor]:
    whole = mapped(folder)
    return [over(whole[:16384]), over(whole[16384:])]


def overlapping(folder: Path) -> list[torch.Tensor]:
    whole = mapped(folder)
    return [over(whole[:20480]), over(whole[16384:])]


def slices_of_slices(folder: Path) -> list[torch.Tensor]:
    whole = mapped(folder)[4096:]
    return [over(whole[:16384]), over(whole[8192:16384])]


def slice_and_whole(folder: Path) -> list[torch.Tensor]:
    whole = mapped(folder)
    return [over(whole[:16384]), over(whole)]


def two_mappings(folder: Path) -> list[torch.Tensor]:
    return [over(mapped(folder)), over(mapped(folder))]


def shared_mappings(folder: Path) -> list[torch.Tensor]:
    return [over(mapped(folder, True)), over(mapped(folder, True))]


ALIASES = [
    disjoint,
    overlapping,
    slices_of_slices,
    slice_and_whole,
    two_mappings,
    shared_mappings,
]


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("parts", ALIASES, ids=lambda parts: parts.__name__)
def test_a_write_through_one_slice(parts: Parts, inside: bool, first: int, tmp_path: Path) -> None:
    """Values computed from the other slice before the write keep their content when evicted."""

    def program(tensors: list[torch.Tensor], on: bool) -> list[torch.Tensor]:
        read, written = tensors[first], tensors[1 - first]
        before = read * 2
        chained = before.sin()
        if on:
            for tensor in (before, chained):
                recoup.evict(tensor)
        written.add_(1)
        after = read * 2
        if on:
            for tensor in (before, chained, after):
                recoup.evict(tensor)
        return [before, chained, after, read + 0]

    (tmp_path / "plain").mkdir()
    (tmp_path / "scope").mkdir()
    plain = program(parts(tmp_path / "plain"), False)
    outside = None if inside else parts(tmp_path / "scope")
    with recoup.budget("64MiB") as run:
        got = program(parts(tmp_path / "scope") if outside is None else outside, True)
        assert bits_equal(got, plain)
        run.check()


def test_slices_of_a_mapping_without_a_tensor_of_the_whole(tmp_path: Path) -> None:
    with recoup.budget("64MiB") as run:
        storage = mapped(tmp_path)
        whole = over(storage)
        total = whole * 2
        del whole
        halves, results = [], []
        for part in (slice(0, 16384), slice(16384, None)):
            halves.append(over(storage[part]))
            results.append(halves[-1] * 3)
        assert [recoup.evict(result) for result in results] == [True, True]
        assert bits_equal(torch.cat(results), torch.arange(8192.0) * 3)
        assert bits_equal(total, torch.arange(8192.0) * 2)
        # A tensor shows the whole again: from now on, the storages share bytes.
        for result in results:
            recoup.evict(result)
        over(storage).fill_(1)
        assert bits_equal(torch.cat(results), torch.arange(8192.0) * 3)
        assert bits_equal(halves[0] + 0, torch.ones(4096))
        run.check()


def test_an_address_of_the_whole_is_an_escape_of_its_slices(tmp_path: Path) -> None:
    import ctypes

    with recoup.budget("64MiB") as run:
        storage = mapped(tmp_path)
        half = over(storage[:16384])
        result = half * 2
        address = storage.data_ptr()
        recoup.evict(result)
        ctypes.memset(address, 0, 16384)
        assert bits_equal(result, torch.arange(4096.0) * 2)
        assert bits_equal(half * 2, torch.zeros(4096))
        run.check()


def test_mapped_files_are_charged_only_where_tensors_show_them(tmp_path: Path) -> None:
    file = tmp_path / "large"
    with file.open("wb") as out:
        out.truncate(256 << 20)
    with recoup.budget("16MiB") as run:
        whole = torch.UntypedStorage.from_file(str(file), False, 256 << 20)
        part = over(whole[: 4 << 20])
        assert (part + 1).sum() == part.numel()
        assert run.stats().external_bytes == 4 << 20
        del part
        copied = over(whole[4 << 20 : 12 << 20]).clone()
        assert copied.sum() == 0
        run.check()


def test_from_pretrained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A BERT that is saved and loaded, in 40 % of its peak."""
    import tqdm
    import transformers

    monkeypatch.setattr(tqdm.tqdm, "monitor_interval", 0)  # starts no thread for progress bars

    torch.manual_seed(0)
    made: Any = bert(500, width=64, depth=4, length=128)
    made.save_pretrained(tmp_path)
    made.save_pretrained(tmp_path / "shards", max_shard_size="300KB")
    ids = torch.randint(500, (8, 128))

    def program(source: Path | None, **options: Any) -> list[torch.Tensor]:
        if source is None:
            model = copy.deepcopy(made)
        else:
            model = transformers.BertForMaskedLM.from_pretrained(source, **options)
        model.train()
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        torch.manual_seed(1)
        losses = []
        for _ in range(2):
            loss = model(input_ids=ids, labels=ids).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return [*losses, *(p.detach() for p in model.parameters())]

    plain = program(None)
    with recoup.budget("8GiB") as run:
        program(None)
    budget = run.stats().peak_bytes * 2 // 5
    for source, options in (
        (tmp_path, {}),
        (tmp_path / "shards", {}),
        (tmp_path, {"low_cpu_mem_usage": True}),
    ):
        with recoup.budget(budget) as run:
            assert bits_equal(program(source, **options), plain)
        with recoup.budget(budget, spill="1GiB", spill_dir=tmp_path) as run:
            assert bits_equal(program(source, **options), plain)
        assert run.stats().replays > 0
