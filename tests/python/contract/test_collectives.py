"""Tensors of a collective are immovable until it completes, and ordinary afterwards."""

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.pipelining as pipelining

import recoup
from differential import in_thread, made, see
from distributed_programs import PROGRAMS

TIER = "64MiB"

# By op of c10d, the arguments that it writes; it reads the others. `each_collective` in
# distributed_programs.py runs the ops that gloo supports, and compares their inputs.
WRITES: dict[str, set[str]] = {
    "_allgather_base_": {"output_tensor"},
    "_reduce_scatter_base_": {"output_tensor"},
    "allgather_": {"output_tensors"},
    "allgather_coalesced_": {"output_lists"},
    "allgather_into_tensor_coalesced_": {"outputs"},
    "allreduce_": {"tensors", "sparse_indices"},
    "allreduce_coalesced_": {"tensors"},
    "alltoall_": {"output_tensors"},
    "alltoall_base_": {"output"},
    "barrier": set(),
    "broadcast_": {"tensors"},
    "check_for_nan": set(),
    "gather_": {"output_tensors"},
    "monitored_barrier_": {"tensor"},
    "recv_": {"tensors"},
    "recv_any_source_": {"tensors"},
    "reduce_": {"tensors"},
    "reduce_scatter_": {"output_tensors"},
    "reduce_scatter_tensor_coalesced_": {"outputs"},
    "scatter_": {"output_tensors"},
    "send": set(),
}

# The number of lines of torch.distributed that take an address, by file. Each use is reviewed.
# entry_points.py lists the modules that only compare addresses, or only read through them.
ASKS_FOR_ADDRESSES = {
    "_local_tensor/__init__.py": 1,  # in a comment
    "_state_dict_utils.py": 3,
    "_symmetric_memory/__init__.py": 1,  # on GPUs
    "checkpoint/_state_dict_stager.py": 4,
    "fsdp/_flat_param.py": 2,  # one in a comment
    "fsdp/_fully_shard/_fsdp_param.py": 4,
    "fsdp/_runtime_utils.py": 2,
    "utils.py": 1,
}


@pytest.fixture(scope="module", autouse=True)
def group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def held(run: recoup.Run) -> list[str]:
    """The reasons of values that are immovable because of a call."""
    return [row.by for row in run.pinned() if row.by in ("escape", "pin")]


# ---- collectives in progress ----


def test_the_output_of_a_collective_is_spilled_instead_of_replayed() -> None:
    with recoup.budget("16MiB", spill=TIER) as run:
        y = made() * 2
        dist.all_reduce(y)
        assert held(run) == []
        assert recoup.evict(y)
        assert torch.equal(y, made() * 2)
    assert run.stats().spills == 1


def test_the_input_of_a_collective_is_recomputable() -> None:
    with recoup.budget("16MiB") as run:
        x = made() * 3
        whole = torch.empty_like(x)
        dist.all_gather_into_tensor(whole, x)
        assert recoup.evict(x)
        assert not recoup.evict(whole)
        assert torch.equal(x, whole)
    assert run.stats().replays > 0


def _reduce_scatter(y: torch.Tensor, x: torch.Tensor) -> dist.Work:
    """A collective whose Work never reports completion."""
    return dist.reduce_scatter_tensor(y, x, async_op=True)


def _wait_until(holds: Callable[[], bool]) -> None:
    """Fails only after a minute, because a thread of gloo may have to wait for a processor."""
    end = time.monotonic() + 60
    while not holds() and time.monotonic() < end:
        time.sleep(0.001)
    assert holds()


def test_tensors_are_neither_moved_nor_evicted_before_the_wait() -> None:
    with recoup.budget("16MiB", spill=TIER) as run:
        x, y = made() * 3, torch.empty_like(made())
        work = _reduce_scatter(y, x)
        litter = made() + 1  # an op during the collective
        assert not recoup.evict(x)
        assert not recoup.evict(y)
        assert "pin" in held(run)
        work.wait()
        del work  # the Work holds a buffer, too
        _wait_until(lambda: held(run) == [])
        assert recoup.evict(x)
        assert recoup.evict(y)
        assert torch.equal(x, y)
    del litter


def test_tensors_of_a_collective_without_a_wait_stay_in_place() -> None:
    with recoup.budget("16MiB", spill=TIER) as run:
        x, y = made() * 3, torch.empty_like(made())
        _reduce_scatter(y, x)
        litter = [made() + i for i in range(3)]
        assert not recoup.evict(x)
        assert not recoup.evict(y)
        del x, y
        _wait_until(lambda: held(run) == [])  # gloo's thread holds a buffer until it has run
    del litter


def test_a_completed_collective_needs_no_wait() -> None:
    with recoup.budget("16MiB", spill=TIER):
        y = made() * 3
        work = dist.all_reduce(y, async_op=True)
        while not work.is_completed():
            pass
        litter = made() + 1  # an op detects the completion
        assert recoup.evict(y)
    del litter


def test_a_wait_for_a_functional_collective_ends_it() -> None:
    with recoup.budget("16MiB", spill=TIER) as run:
        x = made() * 3
        y = torch.ops._c10d_functional.reduce_scatter_tensor(
            x, "sum", 1, dist.group.WORLD.group_name
        )
        assert not recoup.evict(x)
        assert not recoup.evict(y)
        y = torch.ops._c10d_functional.wait_tensor(y)
        assert recoup.evict(x)
        assert recoup.evict(y)
        assert torch.equal(x, y)
    assert run.stats().spills > 0


def test_values_computed_from_a_gathered_tensor_are_recomputable() -> None:
    with recoup.budget("16MiB"):
        gathered = functional.all_gather_tensor(made() * 3, 0, dist.group.WORLD)
        y = gathered * 2
        assert recoup.evict(y)
        assert torch.equal(y, made() * 3 * 2)


def test_the_old_content_is_kept_for_its_dependents() -> None:
    with recoup.budget("16MiB"):
        x = made() * 3
        before = x + 1
        assert recoup.evict(before)
        dist.all_reduce(x)
        x.mul_(0)
        dist.broadcast(x, 0)
        assert torch.equal(before, made() * 3 + 1)


def test_records_of_collectives_do_not_outlive_the_scope() -> None:
    with recoup.budget("16MiB") as run:
        x, y = made() * 3, torch.empty_like(made())
        work = _reduce_scatter(y, x)
    work.wait()
    assert torch.equal(x, y)
    assert run.stats().peak_bytes > 0


# ---- the ops of c10d ----


def _schemas() -> dict[str, torch.FunctionSchema]:
    found = torch._C._jit_get_all_schemas()
    return {each.name[len("c10d::") :]: each for each in found if each.name.startswith("c10d::")}


def test_every_op_of_c10d_is_reviewed() -> None:
    assert _schemas().keys() == WRITES.keys()


@pytest.mark.parametrize("name", sorted(WRITES))
def test_the_names_of_c10d_tell_the_arguments_that_an_op_writes(name: str) -> None:
    """The rule that csrc/torch/ops/traits.cpp has."""
    arguments = _schemas()[name].arguments
    tensors = {each.name for each in arguments if "Tensor" in str(each.type)}
    written = {each for each in tensors if name.endswith("_") and not each.startswith("input")}
    assert written == WRITES[name]


def test_every_line_that_takes_an_address_is_reviewed() -> None:
    folder = Path(dist.__file__).parent
    found = {
        str(path.relative_to(folder)): len(re.findall(r"\bdata_ptr\(\)", path.read_text("utf-8")))
        for path in folder.rglob("*.py")
    }
    assert {name: count for name, count in found.items() if count} == ASKS_FOR_ADDRESSES


# ---- components that keep tensors ----


@pytest.mark.parametrize("name", ["ddp", "ddp_view", "ddp_hook", "fsdp1", "fsdp2"])
def test_components_find_their_tensors_although_all_are_evicted(name: str) -> None:
    plain = see(PROGRAMS[name](0, 1))
    with recoup.budget("64MiB", spill=TIER, options=recoup.Options(evict_after_op=True)) as run:
        assert see(PROGRAMS[name](0, 1)) == plain
    assert run.stats().replays > 0


@pytest.mark.parametrize("name", ["fsdp1", "fsdp2"])
def test_sharded_parameters_do_not_escape(name: str) -> None:
    with recoup.budget("64MiB") as run:
        PROGRAMS[name](0, 1)
        assert held(run) == []


def test_callbacks_of_futures_carry_the_scope() -> None:
    seen = []
    with recoup.budget("16MiB"):
        x = made() * 2
        future: torch.futures.Future[None] = torch.futures.Future()
        future.then(lambda _: seen.append((x + 1).sum().item()))
        assert recoup.evict(x)
        assert in_thread(lambda: future.set_result(None)) == []
    assert seen == [(made() * 2 + 1).sum().item()]


def test_an_error_names_the_reader_of_an_evicted_tensor() -> None:
    with recoup.budget("16MiB"):
        x = made() * 2
        assert recoup.evict(x)
        [error] = in_thread(lambda: x.sum())
    assert re.search(r"It was accessed by at::\S+ of libtorch_cpu\.so", str(error))


# ---- errors on a rank ----


def test_an_error_names_its_rank() -> None:
    with recoup.budget("1MiB"), pytest.raises(recoup.OutOfBudgetError, match="rank 0 of 1"):
        torch.zeros(1 << 20)


def test_an_error_that_is_raised_again_names_its_rank_once() -> None:
    error = recoup.OutOfBudgetError("recoup: out of budget.")
    again = recoup.OutOfBudgetError(f"Caught in a worker: {error}\n")
    assert str(again).count("This is rank 0 of 1.") == 1


def test_a_pipeline_keeps_the_error_as_the_cause() -> None:
    model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(4)))
    stage = pipelining.PipelineStage(model, 0, 1, torch.device("cpu"))
    schedule = pipelining.ScheduleGPipe(stage, 2, loss_fn=torch.nn.functional.mse_loss)
    x = torch.randn(64, 256)
    with pytest.raises(RuntimeError) as raised, recoup.budget("1200KiB"):
        schedule.step(x, target=x)
    assert not isinstance(raised.value, recoup.OutOfBudgetError)
    assert isinstance(raised.value.__cause__, recoup.OutOfBudgetError)
