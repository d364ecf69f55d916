"""The figures of `bench/spilling.py` for a trace, and of `optimum --spill` for a step."""

import sys
from pathlib import Path

import pytest

import recoup
from recoup.offline import _C
from recoup.offline.optimum import optimum
from test_spill import train

sys.path.append(str(Path(__file__).parents[3] / "bench"))

import spilling
import yardsticks

UNIT = 1 << 16


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> recoup.Trace:
    path = tmp_path_factory.mktemp("traces") / "run.rtrace"
    with recoup.trace(path):
        train()
    return recoup.Trace.read(path)


def test_the_largest_op_is_counted_with_all_values_that_it_holds() -> None:
    builder = _C.TraceBuilder()
    for name in ("small", "large"):
        builder.add_name(name)
    builder.add_kernel([UNIT])
    builder.add_kernel([UNIT, 2 * UNIT])
    builder.add_event("external", 0, 3 * UNIT)
    builder.add_op(0, 0, 1000, True, [], [UNIT])
    reads = [(0, True, False, False), (1, True, False, False)]
    builder.add_op(1, 1, 1000, True, reads, [UNIT, 2 * UNIT])
    found = spilling.largest_need(recoup.Trace(builder.build()))
    assert found == spilling.Need("large", (3 + 1 + 1 + 2) * UNIT)


def test_a_trace_runs_at_its_floor_and_not_below(trace: recoup.Trace) -> None:
    row = spilling.floor_row("net", trace)
    tier = spilling.TIER | spilling.APART
    assert row["need_bytes"] <= row["with_bytes"] < row["without_bytes"] <= row["peak_bytes"]
    assert row["kept"] == (row["with_bytes"] <= 1.15 * row["need_bytes"] + (4 << 20))
    assert spilling.runs(trace, row["with_bytes"], tier)
    assert not spilling.runs(trace, row["below_bytes"], tier)
    assert "out of budget" in row["reason"]


def test_overheads_show_where_a_spill_tier_costs_more(trace: recoup.Trace) -> None:
    below, roomy = spilling.overhead_row("net", trace, [0.25, 1.0])
    # Which of the two is faster depends on the machine: the rate of one is a multiple of its own.
    assert below["recoup"] is None and below["disk"] > 0 and below["fast"] > 0
    assert below["disk_spilled_bytes"] > 0 and not spilling.is_above(below, "disk")
    assert roomy["recoup"] == roomy["disk"] == 0 and not spilling.is_above(roomy, "disk")
    assert spilling.is_above({"recoup": 0.3, "fast": 0.25}, "fast", 2 / 3)
    assert not spilling.is_above({"recoup": 0.3, "fast": 0.15}, "fast", 2 / 3)


def test_rows_include_policies_of_other_systems(trace: recoup.Trace) -> None:
    below, roomy = spilling.policy_row("net", trace, [0.25, 1.0])
    assert all(below[policy] > 0 and roomy[policy] == 0 for policy in spilling.OTHERS)
    assert spilling.is_below({"recoup": None, "tflms": 2.0}, "tflms")
    assert not spilling.is_below({"recoup": 0.5, "tflms": 0.5}, "tflms")


def test_policies_compared_with_the_optimum_with_a_tier() -> None:
    """The state of one layer exceeds the budget: sources must be spilled and fetched."""
    builder = _C.TraceBuilder()
    builder.add_name("op")
    builder.add_kernel([UNIT])
    for _ in range(4):
        builder.add_event("external", 0, UNIT)
    for storage in range(4):
        builder.add_op(0, 0, 100_000, True, [(storage, True, False, False)], [UNIT])
        builder.add_event("die", 4 + storage, 0)
    builder.add_name("step")
    builder.add_event("step", 1, 0)
    trace = recoup.Trace(builder.build())
    row = yardsticks.optimum_row("leaves", trace, 0.61, 10, 1.0)  # three units
    assert row["status"] == "optimal" and row["copies"] == 1
    # Two are spilled at the start; then each time one that was read makes room.
    assert row["time_ratio"] > 1
    assert all(ratio >= row["time_ratio"] - 1e-4 for ratio in row["policies"].values())
    assert optimum(trace, 3 * UNIT).status == "infeasible"
