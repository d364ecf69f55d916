"""Budgets on a GPU: options that are refused, and programs that do not fit."""

import ctypes
import os
import tempfile
from typing import Any

import torch
from torch import Tensor, nn

import recoup
from gpu_context import (
    KIB,
    MIB,
    chain,
    check,
    empty_cache,
    here,
    message,
    same,
    step,
    with_outside,
)
from recoup._memory.device_memory import free_bytes
from recoup.bench.flat_options import split
from recoup.decisions import Decision


@check
def refusals() -> None:
    def enter(**options: Any) -> None:
        with recoup.budget(**split({"budget": 16 * MIB, "device": here.device, **options})):
            pass

    count = torch.accelerator.device_count()
    text = message(ValueError, lambda: enter(device=f"{here.device.type}:{count}"))
    assert f"there are {count}" in text, text
    text = message(ValueError, lambda: enter(budget="100TiB"))
    assert "at most the memory of its device" in text, text
    text = message(ValueError, lambda: enter(budget=1))
    assert "must be at least" in text, text
    assert "device must be" in message(TypeError, lambda: enter(device=1.5))
    message(ValueError, lambda: enter(device="nothing"))
    with recoup.budget(16 * MIB, device=here.device):
        text = message(RuntimeError, enter)
        assert f"already active on {here.device}" in text, text
    if here.fake is not None:
        memory = here.fake.take_away(here.device.index, free_bytes(here.device) // 2)
        text = message(RuntimeError, lambda: enter(budget=free_bytes(here.device) + 8 * MIB))
        assert "Choose a smaller budget" in text, text
        here.fake.give_back(here.device.index, memory)
    hog = torch.empty(24 * MIB, dtype=torch.uint8, device=here.device)
    text = message(ValueError, enter)
    assert "memory in use before the scope takes" in text, text
    del hog
    empty_cache()
    enter()  # the refused calls changed no state


@check
def fractions() -> None:
    # CUDA allocates memory for kernels when they first run.
    assert torch.ones(3, device=here.device).add(1).tolist() == [2, 2, 2]
    hog = torch.ones(24 * MIB, dtype=torch.uint8, device=here.device)
    assert hog[:3].tolist() == [1, 1, 1]
    del hog
    empty_cache()
    whole = free_bytes(here.device)
    hog = torch.ones(24 * MIB, dtype=torch.uint8, device=here.device)
    for budget, most in (("50%", whole // 2), ("12.5%", whole // 8), ("auto", whole)):
        with recoup.budget(budget, device=here.device) as run:
            got = run.stats().budget_bytes
            # Rounding to pages of the device, and memory that the driver itself takes.
            assert most - (16 * MIB if budget != "auto" else whole // 2) <= got <= most, got
            assert torch.ones(3, device=here.device).add(1).tolist() == [2, 2, 2]
            run.mark_step()
    assert hog[:3].tolist() == [1, 1, 1]


@check
def out_of_budget() -> None:
    def program() -> None:
        x = [torch.randn(MIB, device=here.device) for _ in range(3)]
        with recoup.pin(x[0]), recoup.pin(x[1]), recoup.pin(x[2]):
            torch.cat(x * 2)

    budget = with_outside(24 * MIB)
    with recoup.budget(budget, device=here.device) as run:
        try:
            program()
        except torch.OutOfMemoryError as error:
            assert isinstance(error, recoup.OutOfBudgetError)
            assert error.op == "aten::cat" and error.asked_bytes == 24 * MIB, error
            assert error.budget_bytes == budget
        else:
            raise AssertionError("it fitted")
        run.check()
        y = torch.ones(MIB, device=here.device).sin()  # the program continues
        assert same(y, torch.ones(MIB).sin()) or here.fake is None
    # Outside of scopes the text is PyTorch's own.
    text = message(
        torch.OutOfMemoryError,
        lambda: torch.empty(free_bytes(here.device) * 2, dtype=torch.uint8, device=here.device),
    )
    assert "Tried to allocate" in text, text


@check
def an_exit_that_does_not_fit() -> None:
    budget = recoup.budget(16 * MIB, device=here.device)
    run = budget.__enter__()
    x = torch.randn(256 * KIB, device=here.device)
    y = [x.sin() * i for i in range(30)]
    want = (x.cpu().sin() * 29, x.sin().cpu() * 29)
    text = message(recoup.OutOfBudgetError, lambda: budget.__exit__(None, None, None))
    assert "at the end of the scope" in text, text
    run.resume(64 * MIB)
    assert same(y[-1], want[1])
    message(RuntimeError, lambda: run.resume(128 * MIB))


@check
def a_capture_of_other_code_is_refused() -> None:
    """recoup takes part in captures by torch.cuda.CUDAGraph only."""
    if here.fake is None and here.stand_in is None:
        print("the program's CUDA runtime is not known")
        return
    with recoup.budget(16 * MIB, device=here.device) as run:
        x = torch.randn(64 * KIB, device=here.device)
        with torch.Stream(device=here.device):
            set_capturing(True)
            text = message(RuntimeError, x.sin_)
            set_capturing(False)
        assert "CUDA graph" in text and "torch.cuda.graph" in text, text
        run.check()
        x.sin_()


def set_capturing(on: bool) -> None:
    """Begins or ends a capture of the current stream without PyTorch's graphs."""
    if here.fake is not None:
        stream = torch.accelerator.current_stream(here.device)
        (here.fake.begin_capture if on else here.fake.end_capture)(stream)
        return
    runtime, graph = ctypes.CDLL(None), ctypes.c_void_p()
    handle = ctypes.c_void_p(torch.cuda.current_stream(here.device).cuda_stream)
    if on:
        assert runtime.cudaStreamBeginCapture(handle, 0) == 0
    else:
        assert runtime.cudaStreamEndCapture(handle, ctypes.byref(graph)) == 0
        assert runtime.cudaGraphDestroy(graph) == 0


@check
def a_capture_within_a_custom_op_is_refused() -> None:
    """The check before the op has passed. The allocator refuses the request."""
    if here.fake is None and here.stand_in is None:
        print("the program's CUDA runtime is not known")
        return

    def captured(x: Tensor) -> Tensor:
        set_capturing(True)
        try:
            return torch.empty_like(x)
        finally:
            set_capturing(False)

    recoup.allow_replay("recoup_captures::captured")
    library = torch.library.Library("recoup_captures", "FRAGMENT")
    library.define("captured(Tensor x) -> Tensor")
    library.impl("captured", captured, "CompositeExplicitAutograd")
    with recoup.budget(16 * MIB, device=here.device) as run, torch.Stream(device=here.device):
        x = torch.randn(64 * KIB, device=here.device)
        text = message(RuntimeError, lambda: torch.ops.recoup_captures.captured(x))
        assert "CUDA graph" in text, text
        run.check()
        x.sin_()


@check
def traces_are_recorded() -> None:
    model = chain(6)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "run.rtrace")
        with recoup.trace(path, device=here.device):
            step(model)
        trace = recoup.Trace.read(path)
        peak = trace.unbudgeted_peak_bytes()
        assert trace.simulate(int(peak * 0.8)).stats.replays > 0


@check
def a_simulation_decides_as_the_run() -> None:
    """With the device's alignment, its bounce buffers, and tensors from before the scope.

    A workspace of cuBLAS that the thread of the backward pass first allocates in a replay is not in
    the trace: see docs/research/traces.md. So that thread runs a product before memory is short,
    and the layers have no bias: with a bias, forward and backward passes take different workspaces.
    """
    hog = torch.ones(5 * MIB, dtype=torch.uint8, device=here.device)
    model = chain(12, bias=False)
    empty_cache()
    ample = min(free_bytes(here.device) // 2, 1 << 30)
    trace = recorded_steps(model, ample, None)
    outside = with_outside(0)
    room = trace.unbudgeted_peak_bytes() - outside
    assert room > 8 * MIB, room
    decided = 0
    common = {"cost_model": "bytes", "planning": "wait"}
    for policy in ("planned", "recoup", "coop", "dtr", "lru"):
        for percent, spill in ((75, None), (60, None), (60, "64MiB")):
            if spill is not None:  # a run imports its model: the next one has a model of its own
                model = chain(12, bias=False)
                trace = recorded_steps(model, ample, spill)
                outside = with_outside(0)
            options: dict[str, Any] = {**common, "policy": policy, "spill": spill}
            budget = outside + room * percent // 100 + 12345
            with recoup.budget(
                budget, device=here.device, profile="decisions", **split(options)
            ) as run:
                three_steps(model, run)
            case = f"{policy}, {percent} %, spill tier: {spill}"
            assert_simulated_alike(run, trace, budget, options, case)
            decided += len(run.decisions())
        model = chain(12, bias=False)
        trace = recorded_steps(model, ample, None)
        outside = with_outside(0)
    assert decided > 0
    assert hog.sum().item() == 5 * MIB


def three_steps(model: torch.nn.Sequential, run: recoup.Run) -> None:
    weight = torch.ones(8, 8, device=here.device, requires_grad=True)
    (weight @ weight).sum().backward()  # type: ignore[no-untyped-call]
    for _ in range(3):
        step(model)
        run.mark_step()


def recorded_steps(model: nn.Sequential, budget: int, spill: str | None) -> recoup.Trace:
    """With a spill tier, a trace says which storages from before the scope may be imported."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "run.rtrace")
        with recoup.budget(budget, device=here.device, trace=path, spill=spill) as recorded:
            three_steps(model, recorded)
        assert recorded.stats().imports == 0
        return recoup.Trace.read(path)


def assert_simulated_alike(
    run: recoup.Run, trace: recoup.Trace, budget: int, options: dict[str, Any], case: str
) -> None:
    simulated = trace.simulate(
        budget, recoup.SimulationOptions(max_time_ratio=0, **options), decisions=True
    )
    assert simulated.status == "ok", f"{case}: {simulated.reason}"
    ours = run.decisions()
    assert ours == simulated.decisions, f"{case}: {difference(ours, simulated.decisions)}"
    assert simulated.stats.peak_bytes == run.stats().peak_bytes, case
    assert simulated.stats.imported_bytes == run.stats().imported_bytes, case


def difference(ours: list[Decision], its: list[Decision]) -> str:
    pairs = enumerate(zip(ours, its, strict=False))
    at = next((at for at, (live, simulated) in pairs if live != simulated), -1)
    lengths = f"{len(ours)} and {len(its)} decisions"
    return lengths if at < 0 else f"{lengths}; number {at} is {ours[at]}, simulated {its[at]}"


@check
def a_budget_that_rounds_to_the_present_one_changes_nothing() -> None:
    with recoup.budget(with_outside(64 * MIB), device=here.device) as run:
        before = run.stats().budget_bytes
        run.set_budget(before + 1)
        assert run.stats().budget_bytes == before
