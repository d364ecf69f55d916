"""The parts of `recoup suggest`: steps of traces, the steady step, the knee, predictions."""

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import recoup
from recoup._memory.sizes import parse_bytes, short_size
from recoup.commands.suggest.output import notes_of
from recoup.offline import _C
from recoup.offline.overheads import Overheads
from recoup.offline.suggestions import Prediction, Predictor, knee_of, steady_step, suggest
from recoup.offline.tier_use import DEFAULT_SPEED, SPEEDS, tier_use
from recoup.offline.trace_steps import Steps, changed, first_events, first_steps, numbers_of
from recoup.offline.traces import Trace

HUGE = 1 << 33


def train(steps: int = 4) -> list[str]:
    """The losses of a chain of layers, to the bit."""
    torch.manual_seed(0)
    layers = [each for _ in range(6) for each in (nn.Linear(64, 64), nn.Tanh())]
    net = nn.Sequential(*layers)
    optimizer = torch.optim.Adam(net.parameters())
    losses = []
    for _ in range(steps):
        loss = net(torch.randn(256, 64)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item().hex())
    return losses


def record(path: Path, program: Callable[[], object] = train) -> Trace:
    """Records with costs in bytes, which are the same in every run."""
    with recoup.budget(HUGE, device="cpu", trace=path, options=recoup.Options(cost_model="bytes")):
        program()
    return Trace.read(path)


def steps_of_ops(steps: Sequence[Sequence[str]], *, storages: int = 1) -> Trace:
    """A trace whose ops read one tensor, or none; each step has the given names."""
    names = sorted({name for step in steps for name in step})
    builder = _C.TraceBuilder()
    for name in names or ["x"]:
        builder.add_name(name)
    builder.add_kernel([])
    for _ in range(storages):
        builder.add_event("external", 0, 4096)
    operands = [(number, True, False, False) for number in range(storages)]
    for step in steps:
        for name in step:
            builder.add_op(names.index(name), 0, 10, True, operands, [])
        builder.add_event("step", 0, 0)
    return Trace(builder.build())


# ---- parts of traces ----


def test_the_numbers_of_a_trace_make_the_same_trace(tmp_path: Path) -> None:
    trace = first_steps(record(tmp_path / "run.rtrace"), 4)
    again = changed(trace, **numbers_of(trace))
    assert again.ops() == trace.ops()
    assert again.steps() == trace.steps() == 4
    assert numbers_of(again) == numbers_of(trace)
    peak = trace.unbudgeted_peak_bytes()
    assert again.unbudgeted_peak_bytes() == peak
    want, got = (
        one.simulate(peak * 7 // 10, recoup.SimulationOptions(plan_ahead=False), decisions=True)
        for one in (trace, again)
    )
    assert got.decisions == want.decisions != []


def test_first_steps(tmp_path: Path) -> None:
    trace = record(tmp_path / "run.rtrace")
    cut = first_steps(trace, 2)
    assert cut.steps() == 2
    assert cut.ops() == trace.ops()[: cut.op_count]


def test_numbers_that_no_engine_records_are_refused() -> None:
    trace = steps_of_ops(["ab"])
    for numbers, what in (
        ({"op_kernels": [0, 7]}, "has no name or no kernel"),
        ({"op_costs_ns": [1, -1]}, "takes -1 ns"),
        ({"event_indices": [0, 1, 0, 0]}, "op 1 runs where op 0 was expected"),
        ({"event_bytes": [-1, 0, 0, 0]}, "a size of -1 bytes"),
    ):
        with pytest.raises(ValueError, match=what):
            changed(trace, **numbers)
    with pytest.raises(ValueError, match="which it does not hold"):
        changed(trace, [(~0,)])


# ---- the steady step ----


@pytest.mark.parametrize(
    ("steps", "first", "repeats"),
    [
        (["iabcx", "abc", "abc", "abc"], 2, 3),
        (["abc", "abc"], 0, 2),
        (["abc", "d"], 0, 1),
        (["iab", "c", "ab", "c", "ab", "c", "ab"], 4, 3),  # two optimizers
        (["i" + 9 * "ab", "c", 9 * "ab", "c"], 1, 1),  # the second round is the first equal one
        (["a" * 20, "a" * 20 + "b", "a" * 20 + "c"], 1, 1),  # nine in ten ops are the same
    ],
)
def test_steady_step(steps: list[str], first: int, repeats: int) -> None:
    steady = steady_step(Steps(steps_of_ops(steps)))
    assert (steady.first_mark, steady.last_mark) == (first, len(steps) - 1)
    assert steady.repeats == repeats


@pytest.mark.parametrize("steps", [[], ["ab"]])
def test_too_few_steps(steps: list[str]) -> None:
    with pytest.raises(ValueError, match=rf"^{len(steps)} steps? in the trace, but 2 are needed"):
        steady_step(Steps(steps_of_ops(steps)))


def with_times(trace: Trace, steps_us: Sequence[int]) -> Trace:
    """The trace with made-up durations of the steps."""
    times = iter(steps_us)
    indices = [next(times) if kind == "time" else at for kind, at, _ in Steps(trace).events]
    return changed(trace, event_indices=indices)


def test_the_time_without_recoup_may_be_measured(tmp_path: Path) -> None:
    """Each step is compared with the same step of the recording, because steps may differ."""
    recorded_us = [900_000, 100_000, 200_000, 400_000]
    trace = with_times(record(tmp_path / "run.rtrace"), recorded_us)
    assert Steps(trace).times_ns() == [1000 * us for us in recorded_us]
    estimated = Predictor(trace)
    assert not estimated.plain_is_measured
    # The first step and an outlier do not count.
    plain = [1, 80_000_000, 160_000_000, 1]
    measured = Predictor(trace, plain_steps_ns=plain)
    assert measured.plain_is_measured
    whole = short_size(2 * estimated.peak_bytes)
    assert measured.predict(whole).time_ratio == pytest.approx(1.25, rel=1e-3)
    assert estimated.predict(whole).time_ratio == pytest.approx(1, rel=1e-3)
    assert not any("Measure again" in note for note in notes_of(measured))
    # A step cannot be shorter than its ops.
    loaded = Predictor(trace, plain_steps_ns=[1000] * 4)
    assert any("Measure again" in note for note in notes_of(loaded))


def test_overheads_are_added_for_each_op_replay_and_eviction(tmp_path: Path) -> None:
    trace = with_times(record(tmp_path / "run.rtrace"), [100_000] * 4)
    without = Predictor(trace)
    budget = short_size(without.peak_bytes * 7 // 10)
    bare = without.predict(budget)
    assert bare.time_ratio is not None and bare.replays > 0
    per_op = Predictor(trace, overheads=Overheads(op_ns=1e5, recording_op_ns=2e5))
    taken_ns = 1e8 - 2e5 * per_op.step_ops
    assert per_op.plain_ns == pytest.approx(taken_ns)
    whole = per_op.predict(short_size(2 * without.peak_bytes)).time_ratio
    assert whole == pytest.approx((taken_ns + 1e5 * per_op.step_ops) / taken_ns)
    # The engine's own time, as the simulation measures it.
    engine = Predictor(trace, overheads=Overheads()).predict(budget).time_ratio
    replays = Predictor(trace, overheads=Overheads(replay_ns=1e7)).predict(budget).time_ratio
    assert engine is not None and replays is not None
    assert bare.time_ratio < engine < bare.time_ratio + 0.1 < replays


def test_waiting_for_a_processor_does_not_count_as_engine_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulations run in parallel, and a machine may have fewer processors than it reports."""
    trace = with_times(record(tmp_path / "run.rtrace"), [1] * 4)
    predictor = Predictor(trace, overheads=Overheads())
    budget = short_size(predictor.peak_bytes * 6 // 10)
    bare = Predictor(trace).predict(budget).time_ratio
    ratio = predictor.predict(budget).time_ratio
    assert bare is not None and ratio is not None and ratio > bare
    monkeypatch.setattr(time, "thread_time_ns", lambda: 0)  # the thread only waited
    assert predictor.predict(budget).time_ratio == pytest.approx(bare, rel=1e-9)


def test_a_trace_without_tensors_is_refused() -> None:
    with pytest.raises(ValueError, match="allocates no tensor memory"):
        Predictor(steps_of_ops(["x", "x"], storages=0))


# ---- the knee ----


def prediction(fraction: float, ratio: float | None) -> Prediction:
    size = round(fraction * 1000)
    return Prediction(f"{size}B", size, fraction, "ok", True, "", ratio, 0, 0)


def test_the_knee_of_a_hyperbola() -> None:
    # y = 1/x over 0.1..1, scaled to the unit square, is farthest from its chord at x = sqrt(0.1).
    points = [prediction(x / 100, 100 / x) for x in range(10, 101)]
    knee = knee_of(points)
    assert knee is not None and math.isclose(knee.fraction, math.sqrt(0.1), abs_tol=0.005)


def test_the_knee_of_a_corner() -> None:
    points = [prediction(0.9, 1.0), prediction(0.5, 1.05), prediction(0.4, 5.0)]
    assert knee_of(points) == points[1]


def test_without_extra_cost_the_knee_is_the_least_budget() -> None:
    points = [prediction(1.0, 1.0), prediction(0.5, 1.005), prediction(0.2, 1.002)]
    assert knee_of(points) == points[2]
    assert knee_of(points[:1]) == points[0]
    assert knee_of([]) is None


# ---- predictions ----


def test_predictions_agree_with_a_live_run(tmp_path: Path) -> None:
    """With constant costs, both make the same decisions, and so have the same counts."""
    trace = record(tmp_path / "run.rtrace")
    predictor = Predictor(trace, cost_model="bytes")
    found = suggest(predictor)
    assert found.knee is not None and found.least is not None
    assert found.least.budget_bytes <= found.knee.budget_bytes < predictor.peak_bytes
    plain = train()
    for one in (found.knee, found.least):
        assert one.status == "ok" and one.holds and one.replays > 0
        with recoup.budget(
            one.budget, options=recoup.Options(cost_model="bytes", planning="wait")
        ) as run:
            assert train() == plain
            stats = run.stats()
        assert stats.replays == one.replays
        assert stats.peak_bytes <= one.budget_bytes == parse_bytes(one.budget)


def test_the_time_ratio_is_that_of_the_steady_step(tmp_path: Path) -> None:
    """It is the cost of all moments between the last two marks."""
    trace = record(tmp_path / "run.rtrace")
    predictor = Predictor(trace, cost_model="bytes")
    one = predictor.predict(short_size(predictor.peak_bytes * 7 // 10))
    moments = trace.timeline(
        one.budget_bytes, recoup.SimulationOptions(plan_ahead=False, cost_model="bytes")
    )
    marks = [place for place, moment in enumerate(moments) if moment.kind == "step"]
    last = moments[marks[-2] : marks[-1]]
    ops = sum(moment.cost_ns for moment in last if moment.kind == "op")
    assert ops == predictor.step_ns
    assert sum(moment.kind == "op" for moment in last) == predictor.step_ops
    assert one.time_ratio == pytest.approx(sum(moment.cost_ns for moment in last) / ops)
    assert one.time_ratio is not None and one.time_ratio > 1


def test_ops_after_the_last_step_must_fit(tmp_path: Path) -> None:
    def program() -> None:
        train(3)
        torch.ones(1 << 20).mul_(2)

    predictor = Predictor(record(tmp_path / "run.rtrace", program))
    assert predictor.peak_bytes >= 4 << 20
    small = predictor.predict("2MiB")
    assert small.status == "out of budget" and "aten::ones" in small.reason and not small.holds
    assert predictor.predict("5MiB").time_ratio == 1.0


def test_a_limit_on_the_time_ratio(tmp_path: Path) -> None:
    trace = record(tmp_path / "run.rtrace")
    small = short_size(Predictor(trace).peak_bytes * 7 // 10)
    ratio = Predictor(trace).predict(small).time_ratio
    assert ratio is not None and ratio > 1.01
    slow = Predictor(trace, max_time_ratio=1.01).predict(small)
    assert slow.status == "too slow" and "1.01 times" in slow.reason


def test_a_spill_tier_allows_smaller_budgets(tmp_path: Path) -> None:
    trace = record(tmp_path / "run.rtrace")
    budget = short_size(Predictor(trace).peak_bytes * 4 // 10)
    assert Predictor(trace).predict(budget).status != "ok"
    spilled = Predictor(trace, spill="64MiB", max_time_ratio=1000).predict(budget)
    assert spilled.status == "ok" and spilled.time_ratio is not None and spilled.time_ratio > 1
    assert 0 < spilled.spill_peak_bytes <= 64 << 20
    assert spilled.written_step_bytes and spilled.read_step_bytes


def test_copies_are_those_of_a_steady_step(tmp_path: Path) -> None:
    trace = record(tmp_path / "run.rtrace")
    predictor = Predictor(trace, spill="64MiB", max_time_ratio=1000)
    found = predictor.predict(short_size(predictor.peak_bytes * 4 // 10))
    ends = Steps(trace).ends[predictor.steady.first_mark : predictor.steady.last_mark + 1]
    before, after = (
        first_events(trace, end).simulate(
            found.budget_bytes,
            recoup.SimulationOptions(spill="64MiB", max_time_ratio=1000, plan_ahead=False),
        )
        for end in (ends[0], ends[-1])
    )
    written = after.stats.spilled_bytes - before.stats.spilled_bytes
    read = after.stats.fetched_bytes - before.stats.fetched_bytes
    steps = predictor.steady.marks
    assert (found.written_step_bytes, found.read_step_bytes) == (written // steps, read // steps)


def test_the_disk_that_a_tier_needs(tmp_path: Path) -> None:
    trace = record(tmp_path / "run.rtrace")
    trace = changed(trace, op_costs_ns=[20 * op.cost_ns for op in trace.ops()])
    options: dict[str, Any] = {"max_time_ratio": 1000, "cost_model": "bytes"}
    predictor, alone = Predictor(trace, spill="64MiB", **options), Predictor(trace, **options)
    assert predictor.with_tier_speed(DEFAULT_SPEED).predict("3MiB") == predictor.predict("3MiB")
    found = [
        predictor.predict(short_size(predictor.peak_bytes * fraction // 10)) for fraction in (4, 7)
    ]
    uses = tier_use(predictor, alone, found)
    assert [use.budget for use in uses] == [one.budget for one in found]
    for use in uses:
        times = {one.gb_per_second: one.time_ratio for one in use.times}
        assert tuple(times) == SPEEDS
        assert (times[SPEEDS[0]] or 0) >= (times[SPEEDS[-1]] or 0) >= 1
        without = use.without.time_ratio if use.without.holds else None
        assert (without is None) == (use is uses[0])

        def is_quicker(speed: float, times: Any = times, without: Any = without) -> bool:
            return without is None or times[speed] < without

        least = use.quicker_from
        at = len(SPEEDS) if least is None else SPEEDS.index(least)
        assert all(map(is_quicker, SPEEDS[at:]))
        assert at == 0 or not is_quicker(SPEEDS[at - 1])


# ---- sizes ----


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (1, "1B"),
        (999, "999B"),
        (1000, "0.98KiB"),
        (1024, "1KiB"),
        (1025, "1.01KiB"),
        (1536 << 20, "1.5GiB"),
        (5 << 30, "5GiB"),
        (1500 << 40, "1500TiB"),
    ],
)
def test_short_sizes(count: int, text: str) -> None:
    assert short_size(count) == text


def test_a_short_size_is_rounded_up_by_at_most_one_percent() -> None:
    for count in (3**k + k for k in range(1, 40)):
        text = short_size(count)
        assert count <= parse_bytes(text) <= 1.01 * count, text
