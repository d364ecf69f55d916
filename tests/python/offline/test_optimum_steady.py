"""The bound of a steady training with a spill tier: known answers, and no run is below it."""

import dataclasses
import re
from pathlib import Path

import pytest
import torch

import recoup
from recoup.offline.graph import Graph, GraphOp, GraphValue, TierPrice
from recoup.offline.optimum_steady import (
    PROCESSOR_FRACTION,
    steady_bound,
    with_median_costs,
    with_step_end,
)
from recoup.offline.trace_steps import changed, first_steps
from test_optimum import POLICIES

MIB = 1 << 20
OP_NS = 10_000_000
PRICE = TierPrice(write_ns_per_byte=1.0, read_ns_per_byte=2.0, each_ns=0)
WRITE = MIB / OP_NS  # time of a copy of 1 MiB over that of an op
READ = 2 * MIB / OP_NS


def alternating(*, changes: bool, between: bool = False) -> Graph:
    """Two states of 1 MiB. Each is used by one op of the step, which `changes` it in place.

    between: a third op runs between the two, and uses neither.
    """
    readers = [0, 1 + between]
    end = readers[1] + 1
    values: list[GraphValue] = []
    ops = [GraphOp("op", OP_NS, 0, [], []) for _ in range(end)]
    for at in readers:
        old = len(values)
        dies = at if changes else end
        values.append(GraphValue(None, None, 0, dies, [at], MIB, recomputable=False))
        ops[at].inputs.append(old)
        if changes:
            values.append(GraphValue(at, old, at, end, [], MIB, recomputable=False))
            ops[at].outputs.append(old + 1)
    return Graph(ops, values, [])


@pytest.mark.parametrize(
    ("changes", "copies"),
    [
        (True, WRITE + READ),  # each state leaves and returns in every step
        (False, READ),  # both have been in the tier since an earlier step
    ],
)
@pytest.mark.parametrize("fraction", [0.0, 0.14, 1.0])
def test_states_that_take_turns(changes: bool, copies: float, fraction: float) -> None:
    graph = alternating(changes=changes)
    # One leaves and the other one comes between two ops, and again between two steps of two ops.
    found = steady_bound(graph, MIB * 3 // 2, PRICE, fraction=fraction)
    assert found.proved
    assert found.bound == pytest.approx(1 + copies, abs=1e-4)
    assert steady_bound(graph, 2 * MIB, PRICE, fraction=fraction).bound == pytest.approx(
        1, abs=1e-6
    )
    assert steady_bound(graph, MIB // 2, PRICE, fraction=fraction).bound is None

    # An op between the two hides the copies of one turn: three ops, and two turns.
    hidden = steady_bound(
        alternating(changes=changes, between=True), MIB * 3 // 2, PRICE, fraction=fraction
    )
    assert hidden.bound == pytest.approx(1 + (copies + fraction * copies) / 3, abs=1e-4)


def test_copies_that_take_longer_than_a_step() -> None:
    slow = dataclasses.replace(PRICE, write_ns_per_byte=30.0)
    found = steady_bound(alternating(changes=True, between=True), MIB * 3 // 2, slow, fraction=0.14)
    time_of_copies = 2 * (30 * WRITE + READ)
    assert found.bound is not None
    assert found.bound == pytest.approx((time_of_copies + 2) / 3, abs=1e-4)


def test_a_value_that_is_dropped_unread_needs_no_memory() -> None:
    graph = alternating(changes=True)
    old = GraphValue(None, None, 0, 1, [], MIB, recomputable=False)
    both = Graph(graph.ops, [*graph.values, old], [])
    assert steady_bound(both, 2 * MIB, PRICE).bound == pytest.approx(1, abs=1e-6)


def test_successors() -> None:
    graph = alternating(changes=True)
    ended, successors = with_step_end(graph)
    assert successors == {0: 1, 2: 3}
    assert with_step_end(alternating(changes=False))[1] == {0: 0, 1: 1}
    assert len(ended.ops) == len(graph.ops) + 1
    assert [ended.values[v].dies for v in (1, 3)] == [3, 3]


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> recoup.Trace:
    """Twelve steps whose state is most of their memory. Ops count ten times as long, so that some
    copies are hidden."""
    path = tmp_path_factory.mktemp("steady") / "run.rtrace"
    torch.manual_seed(0)
    with recoup.trace(path):
        model = torch.nn.Sequential(
            torch.nn.Linear(128, 128), torch.nn.GELU(), torch.nn.Linear(128, 128)
        )
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(12):
            optimizer.zero_grad()
            model(torch.randn(256, 128)).square().mean().backward()
            optimizer.step()
    trace = recoup.Trace.read(path)
    slow = changed(trace, op_costs_ns=[10 * op.cost_ns for op in trace.ops()])
    return with_median_costs(slow)


def test_steps_have_equal_costs(training: recoup.Trace) -> None:
    steps = [[op.cost_ns for op in training.step(index).ops()] for index in (-3, -2, -1)]
    assert steps[0] == steps[1] == steps[2] and len(steps[0]) > 50


@pytest.mark.parametrize("percent", [90, 70, 55])
def test_no_steady_run_is_below_the_bound(training: recoup.Trace, percent: int) -> None:
    step = training.step()
    budget = step.unbudgeted_peak_bytes() * percent // 100
    found = steady_bound(step, budget, TierPrice(), time_limit=20)
    assert found.bound is not None and found.bound >= 1
    early = first_steps(training, 6)
    ran = 0
    for policy in POLICIES:
        runs = [
            trace.simulate(
                budget,
                recoup.SimulationOptions(
                    policy=policy, layout=False, spill="1GiB", max_time_ratio=0
                ),
            )
            for trace in (early, training)
        ]
        if any(run.status != "ok" for run in runs):
            continue
        ran += 1
        plain, *costs = (
            getattr(runs[1], name) - getattr(runs[0], name)
            for name in ("plain_cost_ns", "replay_cost_ns", "spill_cost_ns")
        )
        assert 1 + sum(costs) / plain >= found.bound - 1e-3, policy
    assert ran > 0


def test_numbers_out_of_range_are_refused(training: recoup.Trace) -> None:
    step = training.step()
    for fraction, time_limit in ((1.5, 1.0), (-0.1, 1.0), (0.5, 0.0)):
        with pytest.raises(ValueError, match="a time limit must be above 0 s"):
            steady_bound(step, 1 << 30, TierPrice(), fraction=fraction, time_limit=time_limit)


def test_the_fraction_is_that_of_the_engine() -> None:
    header = (Path(__file__).parents[3] / "csrc/engine/base/tier.h").read_text()
    found = re.search(r"kProcessorFraction = ([\d.]+);", header)
    assert found is not None and float(found[1]) == PROCESSOR_FRACTION
