"""The bound of a steady training with a spill tier: known answers, and no run is below it."""

import dataclasses
from pathlib import Path

import pytest
import torch

import recoup
from recoup.offline.graph import Graph, GraphOp, GraphValue, TierPrice
from recoup.offline.optimum_steady import bound_of, steady_bound, with_median_costs, with_step_end
from recoup.offline.trace_file import OpRecord, first_steps, records_of, trace_of
from test_optimum import POLICIES

MIB = 1 << 20
OP_NS = 10_000_000
PRICE = TierPrice(write_ns_per_byte=1.0, read_ns_per_byte=2.0, each_ns=0)
WRITE = MIB / OP_NS  # time of a copy of 1 MiB over that of an op
READ = 2 * MIB / OP_NS


def state(size: int, op: int, *, changes: bool) -> list[GraphValue]:
    """A state that op `op` reads, and replaces in place if it `changes`."""
    last = 2  # number of ops
    first = GraphValue(None, None, 0, op if changes else last, [op], size, recomputable=False)
    return [first, GraphValue(op, 0, op, last, [], size, recomputable=False)][: 1 + changes]


def alternating(*, changes: bool) -> Graph:
    """Two states of 1 MiB; each op of the step uses one of them."""
    first, second = state(MIB, 0, changes=changes), state(MIB, 1, changes=changes)
    values = [*first, *second]
    if changes:
        values[3] = dataclasses.replace(values[3], before=2)
    at = [0, len(first)]
    ops = [
        GraphOp("op", OP_NS, 0, [at[i]], [at[i] + 1] if changes else []) for i in range(2)
    ]
    return Graph(ops, values, [])


@pytest.mark.parametrize(
    ("changes", "copies"),
    [
        (True, 2 * (WRITE + READ)),  # each state leaves and returns in every step
        (False, 2 * READ),  # both have been in the tier since an earlier step
    ],
)
@pytest.mark.parametrize("share", [0.0, 0.14, 1.0])
def test_states_that_take_turns(changes: bool, copies: float, share: float) -> None:
    graph = alternating(changes=changes)
    in_ops = copies / 2  # a step is two ops
    found = bound_of(graph, MIB * 3 // 2, PRICE, share)
    assert found.proved
    assert found.bound == pytest.approx(1 + max(share * in_ops, in_ops - 1), abs=1e-4)
    assert bound_of(graph, 2 * MIB, PRICE, share).bound == pytest.approx(1, abs=1e-6)
    assert bound_of(graph, MIB // 2, PRICE, share).bound is None


def test_copies_that_take_longer_than_a_step() -> None:
    slow = dataclasses.replace(PRICE, write_ns_per_byte=30.0)
    found = bound_of(alternating(changes=True), MIB * 3 // 2, slow, 0.14)
    assert found.bound == pytest.approx(30 * WRITE + READ, abs=1e-4)


def test_a_value_that_is_dropped_unread_needs_no_memory() -> None:
    graph = alternating(changes=True)
    old = GraphValue(None, None, 0, 1, [], MIB, recomputable=False)
    both = Graph(graph.ops, [*graph.values, old], [])
    assert bound_of(both, 2 * MIB, PRICE).bound == pytest.approx(1, abs=1e-6)


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
    records = [
        dataclasses.replace(record, cost_ns=10 * record.cost_ns)
        if isinstance(record, OpRecord)
        else record
        for record in records_of(recoup.Trace.read(path))
    ]
    return with_median_costs(trace_of(records))


def test_steps_have_equal_costs(training: recoup.Trace) -> None:
    steps = [[op.cost_ns for op in training.step(index).ops()] for index in (-3, -2, -1)]
    assert steps[0] == steps[1] == steps[2] and len(steps[0]) > 50


@pytest.mark.parametrize("percent", [90, 70, 55])
def test_no_steady_run_is_below_the_bound(training: recoup.Trace, percent: int) -> None:
    step = training.step()
    budget = step.unbudgeted_peak_bytes() * percent // 100
    found = steady_bound(step, budget, TierPrice(), time_limit=20)
    assert found.bound is not None and found.bound >= 1
    early = trace_of(first_steps(records_of(training), 6))
    ran = 0
    for policy in POLICIES:
        runs = [
            trace.simulate(budget, policy=policy, layout=False, spill="1GiB", max_time_ratio=0)
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
    for options in ({"share": 1.5}, {"share": -0.1}, {"time_limit": 0.0}):
        with pytest.raises(ValueError, match="a time limit must be above 0 s"):
            steady_bound(step, 1 << 30, TierPrice(), **options)
