"""The public Python face: scope, decorator, queries, statistics and patched entry points."""

import copy
import dataclasses
import gc
import io
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import recoup
from conftest import bits_equal
from patched import rows_of_scopes
from recoup.patches import Patches, Replacement, hide
from recoup.report import format_ns, format_report


def made() -> torch.Tensor:
    """A value that can be recomputed, large enough to be worth it."""
    return torch.arange(4096.0).mul(0.5)


# ---- the package ----


def test_import_loads_no_offline_tools() -> None:
    script = (
        "import sys, recoup\n"
        "print({m.split('.')[1] for m in sys.modules if m.startswith('recoup.')}"
        " & {'offline', 'bench', 'commands', 'tables'} | {'rich'} & {*sys.modules})"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert result.stdout == "set()\n"


def test_offline_names_are_there_when_asked_for() -> None:
    names = {*recoup.__all__, "layout"}
    assert names <= set(dir(recoup))
    assert all(hasattr(recoup, name) for name in names)
    assert recoup.layout.plan([]).size_bytes == 0
    moment = recoup.Moment("op", "aten::add", 0, 1, 2)
    assert pickle.loads(pickle.dumps(moment)) == moment
    with pytest.raises(AttributeError, match="module 'recoup' has no attribute 'nothing'"):
        recoup.nothing  # noqa: B018


# ---- scope ----


def test_scope_is_active_inside_only() -> None:
    assert not recoup._C.active()
    with recoup.budget("64MiB") as run:
        assert recoup._C.active()
        assert isinstance(run, recoup.Run)
    assert not recoup._C.active()


def test_budget_is_checked_before_the_scope() -> None:
    with pytest.raises(ValueError, match=r"policy must be one of .*lru"):
        recoup.budget("64MiB", policy="mru")


def test_one_object_is_good_for_several_runs() -> None:
    scope = recoup.budget("64MiB")
    with scope as first:
        made()
    with scope as second:
        pass
    assert first is not second
    assert second.stats().op_count < max(first.stats().op_count, 1)


def test_decorator_starts_a_run_at_every_call() -> None:
    @recoup.budget("64MiB")
    def work(a: int, *, b: int = 1) -> tuple[bool, int]:
        """Works."""
        return recoup._C.active(), a + b

    assert (work.__name__, work.__doc__) == ("work", "Works.")
    assert work(1) == (True, 2)
    assert work(1, b=2) == (True, 3)
    assert not recoup._C.active()


def test_decorator_refuses_what_runs_later() -> None:
    def generator() -> Any:
        yield 1

    async def coroutine() -> None: ...

    async def async_generator() -> Any:
        yield 1

    for function in (generator, coroutine, async_generator):
        with pytest.raises(TypeError, match=r"with recoup\.budget"):
            recoup.budget("64MiB")(function)


def test_policies_list_what_budget_takes() -> None:
    names = [policy.name for policy in recoup.policies()]
    assert "dtr-eq" in names
    assert len(set(names)) == len(names)
    for name in names:
        with recoup.budget("64MiB", policy=name):
            assert made().sum().item() == 4095 * 4096 / 4
    assert all(p.summary and "\n" not in p.summary for p in recoup.policies())


@pytest.mark.parametrize(
    "options",
    [
        {"verify": True},
        {"small_filter": False, "sampling": False, "seed": 0},
        {"usefulness": False, "replay_order": "recursive", "max_replay_ratio": 0},
        {"block_size": "32MiB", "move_ns_per_byte": 1000.0},
        {"policy": "dtr-eq", "kinetic": True},
        {"evict_after_op": True, "cost_model": "bytes"},
    ],
)
def test_every_option_is_taken(options: dict[str, Any]) -> None:
    want = made().sin()
    with recoup.budget("64MiB", **options):
        got = made().sin()
    assert bits_equal(got, want)


# ---- queries ----


def test_evict_and_materialize() -> None:
    want = made()
    with recoup.budget("64MiB") as run:
        value = made()
        assert recoup.is_resident(value)
        assert recoup.evict(value)
        assert not recoup.is_resident(value)
        recoup.materialize(value)
        assert recoup.is_resident(value)
        assert bits_equal(value, want)
        assert run.stats().evictions >= 1
        assert recoup.evict(value)
    assert recoup.is_resident(value)
    assert bits_equal(value, want)


def test_pinned_stays() -> None:
    with recoup.budget("64MiB"):
        value = made()
        recoup.evict(value)
        with recoup.pin(value) as same:
            assert same is value
            assert recoup.is_resident(value)
            assert not recoup.evict(value)
        assert recoup.evict(value)


def test_outside_a_scope_nothing_is_managed() -> None:
    value = made()
    assert not recoup.evict(value)
    assert recoup.is_resident(value)
    recoup.materialize(value)
    with recoup.pin(value):
        pass


# ---- statistics ----


def test_stats_are_documented_frozen_and_go_to_json() -> None:
    with recoup.budget("64MiB") as run:
        made()
        during = run.stats()
    after = run.stats()
    assert during.budget_bytes == after.budget_bytes == 64 * 2**20
    assert after.op_count >= during.op_count
    assert after.to_dict() == {
        field.name: getattr(after, field.name) for field in dataclasses.fields(after)
    }
    with pytest.raises(dataclasses.FrozenInstanceError):
        after.replays = 1  # type: ignore[misc]


def test_stats_and_the_module_cannot_drift() -> None:
    with recoup.budget("64MiB") as run:
        counts = run._engine.stats()
    assert recoup.Stats.from_engine(counts) == run.stats()
    with pytest.raises(ValueError, match=r"missing \['replays'\], unknown \[\]"):
        recoup.Stats.from_engine({k: v for k, v in counts.items() if k != "replays"})
    with pytest.raises(ValueError, match=r"missing \[\], unknown \['replais'\]"):
        recoup.Stats.from_engine({**counts, "replais": 0})


def test_stats_can_be_read_from_another_thread() -> None:
    seen: list[recoup.Stats] = []
    with recoup.budget("64MiB") as run:
        made()
        thread = threading.Thread(target=lambda: seen.append(run.stats()))
        thread.start()
        thread.join()
    assert seen[0].budget_bytes == 64 * 2**20


def stats_of(**counts: int) -> recoup.Stats:
    zeros = {field.name: 0 for field in dataclasses.fields(recoup.Stats)}
    return recoup.Stats.from_engine(zeros | counts)


def test_report() -> None:
    stats = stats_of(
        budget_bytes=2**30,
        peak_bytes=2**29,
        replays=1234,
        evictions=99,
        evicted_bytes=3 * 2**20,
        op_ns=2 * 10**9,
        replay_ns=10**8,
    )
    pinned = [
        {"bytes": 2**20, "by": "leaf", "op": "aten::randn"},
        {"bytes": 2**10, "by": "escape", "op": "aten::add"},
        {"bytes": 2**20, "by": "leaf", "op": "aten::randn"},
        *({"bytes": 1, "by": "leaf", "op": f"aten::op{i}"} for i in range(20)),
    ]
    lines = [
        tuple(cell.strip() for cell in line.split("  ") if cell.strip())
        for line in format_report(stats, pinned, policy="lru").splitlines()
    ]
    for line in [
        ("recoup: policy lru, budget 1,073,741,824 bytes (1.0 GiB)",),
        ("peak", "512 MiB", "50.0 %"),
        ("replays", "1,234"),
        ("evictions", "99", "3.0 MiB"),
        ("plain ops", "2.00 s", "100.0 %"),
        ("replays", "100.00 ms", "5.0 %"),
        ("leaf", "2.0 MiB", "2", "aten::randn"),
        ("escape", "1.0 KiB", "1", "aten::add"),
        ("others", "12 B", "12", "-"),
    ]:
        assert line in lines, line


def test_report_columns_are_aligned() -> None:
    text = format_report(stats_of(budget_bytes=1), [], policy="lru")
    assert text == "\n".join(line.rstrip() for line in text.splitlines())
    (work, ops) = (line for line in text.splitlines() if line.startswith(("work", "ops")))
    assert work.index("count") + len("count") == ops.rindex("0") + 1
    assert "nothing" in text


def test_report_is_plain_and_of_one_width(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned = [{"bytes": 1, "by": "[red]leaf[/red]", "op": "my:smile:op" + 200 * "x"}]
    wide = format_report(stats_of(budget_bytes=1), pinned, policy="lru")
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert format_report(stats_of(budget_bytes=1), pinned, policy="lru") == wide
    assert wide.isascii() and wide.endswith("  my:smile:op" + 200 * "x")
    assert "[red]leaf[/red] " in wide


def test_report_of_a_run_during_and_after() -> None:
    with recoup.budget("64MiB") as run:
        made()
        assert "plain ops" in run.report()
    assert "plain ops" in run.report()


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 ns"), (999, "999 ns"), (1500, "1.50 us"), (10**6, "1.00 ms"), (10**10, "10.00 s")],
)
def test_format_ns(count: int, text: str) -> None:
    assert format_ns(count) == text


# ---- entry points ----


def patched_attributes() -> list[tuple[Any, str]]:
    return [(row.owner, row.name) for row in rows_of_scopes()]


def test_originals_are_back_after_the_scope() -> None:
    missing = object()
    attributes = patched_attributes()
    before = [vars(owner).get(name, missing) for owner, name in attributes]
    seen = [getattr(owner, name, missing) for owner, name in attributes]
    with recoup.budget("64MiB"):
        inside = [getattr(owner, name, missing) for owner, name in attributes]
    after = [vars(owner).get(name, missing) for owner, name in attributes]
    assert all(a is b for a, b in zip(before, after, strict=True))
    for (_, name), old, new in zip(attributes, seen, inside, strict=True):
        if old is not missing:
            assert old is not new, name
        if new is not missing:
            assert new.__name__ == old.__name__
            assert new.__doc__ == old.__doc__


def test_originals_are_back_after_an_exception() -> None:
    with pytest.raises(KeyboardInterrupt), recoup.budget("64MiB"):
        raise KeyboardInterrupt
    assert "data_ptr" not in vars(torch.Tensor)


class Owner:
    def own(self) -> int:
        return 1


class Heir(Owner):
    hidden = 3


def plus_one(original: Callable[..., int]) -> Callable[..., int]:
    return lambda *args: original(*args) + 1


def test_patches_count_their_users_and_uncover_what_is_inherited() -> None:
    patches = Patches(
        [
            Replacement(Heir, "own", plus_one),
            Replacement(Heir, "hidden", hide),
            Replacement(Heir, "absent", plus_one, "no class has it"),
        ]
    )
    patches.install("first")
    patches.install("second")
    patches.install("second")
    assert (Heir().own(), hasattr(Heir, "hidden"), hasattr(Heir, "absent")) == (2, False, False)
    patches.remove("second")
    patches.remove("second")
    assert Heir().own() == 2
    patches.remove("first")
    assert (Heir().own(), Heir.hidden, "own" in vars(Heir)) == (1, 3, False)


def test_what_somebody_else_patched_meanwhile_stays() -> None:
    class Other(Owner): ...

    patches = Patches([Replacement(Other, "own", plus_one)])
    patches.install("user")
    Other.own = theirs = plus_one(Other.own)  # type: ignore[method-assign]
    patches.remove("user")
    assert Other.own is theirs


def test_a_maker_that_fails_leaves_nothing_behind() -> None:
    def fail(original: object) -> object:
        raise LookupError

    patches = Patches([Replacement(Owner, "own", plus_one), Replacement(Heir, "hidden", fail)])
    with pytest.raises(LookupError):
        patches.install("user")
    assert Owner().own() == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_the_child_of_a_fork_goes_on_in_the_scope() -> None:
    want = made().tolist()
    with recoup.budget("64MiB") as run:
        value = made()
        assert recoup.evict(value)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                same = value.tolist() == want and value.add_(1).sum().item() == sum(want) + 4096
                run.check()
                status = 0 if same and recoup._C.active() else 1
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        # The child worked in a copy.
        assert not recoup.is_resident(value)
        assert value.tolist() == want


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
    "copy": copy.copy,
    "storage": lambda value: value.storage().tolist(),
    "storage slice": lambda value: (value.untyped_storage()[:4096], value.tolist())[1],
    "apply_": lambda value: value.apply_(lambda x: x),
    "share_memory_": lambda value: value.share_memory_(),
    "data_ptr": lambda value: value.tolist() if value.data_ptr() else None,
}


def as_list(thing: Any) -> list[float]:
    result: list[float] = thing if isinstance(thing, list) else thing.tolist()
    return result


@pytest.mark.parametrize("name", READS)
def test_what_reads_a_copy_sees_the_bytes(name: str) -> None:
    want = made().tolist()
    with recoup.budget("64MiB") as run:
        value = made()
        assert recoup.evict(value)
        got = READS[name](value)
        escapes = run.stats().escapes
        # It only looked: the value may be evicted again.
        assert recoup.evict(value)
    assert as_list(got) == want
    assert escapes == 0
    assert value.tolist() == want


@pytest.mark.filterwarnings("ignore:TypedStorage")
@pytest.mark.parametrize("name", VIEWS)
def test_what_shows_the_bytes_keeps_them_in_place(name: str) -> None:
    want = made().tolist()
    with recoup.budget("64MiB") as run:
        value = made()
        assert recoup.evict(value)
        got = VIEWS[name](value)
        assert run.stats().escapes >= 1
        assert not recoup.evict(value)
        assert as_list(got) == want
    assert value.tolist() == want


def test_a_copy_that_is_shown_keeps_its_place() -> None:
    want = made()
    with recoup.budget("64MiB"):
        array = np.from_dlpack(made(), copy=True)
        forced = torch.complex(made(), made()).conj().numpy(force=True)
        # All that could be evicted goes.
        for thing in gc.get_objects():
            if type(thing) is torch.Tensor:
                recoup.evict(thing)
        filler = [torch.full((4096,), float(i)) for i in range(64)]
        assert array.tolist() == want.tolist()
        assert forced.imag.tolist() == (-want).tolist()
    assert len(filler) == 64


def test_a_numpy_view_writes_through() -> None:
    with recoup.budget("64MiB"):
        value = made()
        value.numpy()[0] = 7
        assert value[0].item() == 7
    assert value[0].item() == 7


def test_storages_from_before_the_scope() -> None:
    value = made()
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


def test_nothing_is_printed_with_wrong_arguments() -> None:
    with recoup.budget("64MiB"):
        for wrong in (torch.Tensor.data_ptr, torch.Tensor.tolist, torch.Tensor.untyped_storage):
            with pytest.raises(TypeError):
                wrong()


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


def test_higher_order_ops_run() -> None:
    cond = torch.ops.higher_order.cond
    value = torch.ones(4, requires_grad=True)

    def run() -> torch.Tensor:
        out = cond(value.sum() > 0, lambda x: (x.sin(),), lambda x: (x.cos(),), (value,))[0]
        return torch.autograd.grad(out.sum(), value)[0]

    want = run()
    with recoup.budget("64MiB"):
        got = run()
    assert bits_equal(got, want)
