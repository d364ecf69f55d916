"""The optimum with a spill tier: no policy is below its bound, schedules are valid, and brute force
finds nothing better.
"""

import heapq

import pytest

import recoup
from recoup.offline.graph import Graph, TierPrice, graph_of
from recoup.offline.optimum import optimum
from recoup.offline.optimum_model import with_scope_exit
from recoup.offline.schedule import Schedule
from test_optimum import EXACT, POLICIES, Program, arriving

UNIT = 4096  # the smallest value that a spill tier takes
SLOWNESS = 50  # of ops: so that copies of 100 us and more are sometimes worth their cost
MOST_VALUES = 6  # the limit for brute force
PRICE = TierPrice()


def program(seed: int, ops: int) -> recoup.Trace:
    return Program(seed, ops, UNIT, SLOWNESS).trace()


def budgets_of(trace: recoup.Trace) -> list[int]:
    peak = trace.unbudgeted_peak_bytes()
    return sorted(
        {peak * fraction // 100 // UNIT * UNIT for fraction in (90, 75, 60, 45)}, reverse=True
    )


@pytest.mark.parametrize("seed", range(400, 440))
def test_no_policy_is_below_the_bound(seed: int) -> None:
    trace = program(seed, 4 + seed % 12)
    for budget in budgets_of(trace):
        found = optimum(trace, budget, time_limit=5, small_result_bytes=0, tier=PRICE)
        for policy in POLICIES:
            run = trace.simulate(
                budget, recoup.SimulationOptions(policy=policy, spill="1GiB", **EXACT)
            )
            if run.status == "ok":
                assert found.bound is not None, (budget, policy)
                assert run.time_ratio >= found.bound - 1e-5, (budget, policy)


def recount(graph: Graph, budget: int, schedule: Schedule) -> tuple[int, int, int]:
    """(peak in bytes, cost of replays, cost of copies); fails if the schedule is invalid."""
    values, resident, done, peak = graph.values, arriving(graph, 0), 0, 0
    replays = copies = 0
    written: set[int] = set()
    for step in schedule.steps:
        v = step.index
        if step.kind == "write":
            assert v in resident and v not in written and PRICE.takes(values[v])
            written.add(v)
            copies += PRICE.write_ns(values[v])
            continue
        if step.kind == "fetch":
            assert v in written and v not in resident
            resident.add(v)
            copies += PRICE.read_ns(values[v])
            assert sum(values[each].size_bytes for each in resident) <= budget
            continue
        if step.kind == "drop":
            held = not values[v].recomputable and done < values[v].dies
            assert v in resident and (not held or v in written)
            resident.remove(v)
            continue
        op, first = graph.ops[v], v == done
        assert v <= done and resident.issuperset(op.inputs)
        replays += 0 if first else op.cost_ns
        used = sum(values[each].size_bytes for each in resident) + op.kernel_bytes
        used += sum(
            values[each].size_bytes
            for each in op.outputs
            if values[each].before is not None and values[each].before not in step.taken
        )
        assert resident.issuperset(step.taken)
        peak = max(peak, used)
        resident -= set(step.taken)
        resident |= {each for each in op.outputs if first or values[each].recomputable}
        done += first
        resident |= arriving(graph, done) if first else set()
        for each, value in enumerate(values):
            born = value.born + (value.producer is not None) <= done < value.dies
            assert not born or value.recomputable or each in resident | written
    assert done == len(graph.ops)
    assert peak <= budget
    return peak, replays, copies


@pytest.mark.parametrize("seed", range(500, 540))
def test_the_figures_of_a_schedule_are_right(seed: int) -> None:
    trace = program(seed, 6 + seed % 20)
    graph = with_scope_exit(graph_of(trace, small_result_bytes=0))
    plain = sum(op.cost_ns for op in graph.ops)
    for budget in budgets_of(trace):
        found = optimum(trace, budget, time_limit=2, small_result_bytes=0, tier=PRICE)
        made = found.schedule
        if made is not None:
            counted = recount(graph, budget, made)
            assert counted == (made.peak_bytes, made.replay_cost_ns, made.copy_cost_ns)
            assert found.time_ratio == 1 + made.cost_ns / plain
            assert found.bound is not None and found.bound <= found.time_ratio + 1e-5


State = tuple[int, frozenset[int], frozenset[int]]  # ops done, resident values, values with a copy


def brute_force(graph: Graph, budget: int) -> float | None:
    """The least time ratio over all sequences of runs, drops and copies; None if no sequence fits.

    An overwritten value is lost unless it has a copy, and a write ends the copy.
    """
    values, ops = graph.values, graph.ops

    def after_run(state: State, i: int) -> State | None:
        done, resident, written = state
        op, first = ops[i], i == done
        if not resident.issuperset(op.inputs):
            return None
        taken = {values[v].before for v in op.outputs} & resident
        if not first:
            taken = {v for v in taken if values[v].recomputable and v in op.inputs}
        used = sum(values[v].size_bytes for v in resident) + op.kernel_bytes
        used += sum(
            values[v].size_bytes
            for v in op.outputs
            if values[v].before is not None and values[v].before not in taken
        )
        if used > budget:
            return None
        made = {v for v in op.outputs if first or values[v].recomputable}
        arrived = arriving(graph, done + 1) if first else set()
        return done + first, resident - taken | made | arrived, written

    def following(state: State) -> list[tuple[int, State | None]]:
        done, resident, written = state
        found: list[tuple[int, State | None]] = [(0, after_run(state, done))]
        for i in range(done):
            if any(values[v].recomputable for v in ops[i].outputs):
                found.append((ops[i].cost_ns, after_run(state, i)))
        for v in resident:
            held = not values[v].recomputable and done < values[v].dies
            if not held or v in written:
                found.append((0, (done, resident - {v}, written)))
            if v not in written:
                found.append((PRICE.write_ns(values[v]), (done, resident - {v}, written | {v})))
        used = sum(values[v].size_bytes for v in resident)
        for v in written - resident:
            if used + values[v].size_bytes <= budget:
                found.append((PRICE.read_ns(values[v]), (done, resident | {v}, written)))
        return found

    start: State = (0, frozenset(arriving(graph, 0)), frozenset())
    best, heap, turn = {start: 0}, [(0, 0, start)], 0
    while heap:
        cost, _, state = heapq.heappop(heap)
        if state[0] == len(ops):
            return 1 + cost / sum(op.cost_ns for op in ops)
        if cost > best[state]:
            continue
        for more, then in following(state):
            if then is not None and cost + more < best.get(then, 1 << 60):
                best[then] = cost + more
                turn += 1
                heapq.heappush(heap, (cost + more, turn, then))
    return None


def small(seed: int) -> bool:
    return len(graph_of(program(seed, 3), small_result_bytes=0).values) <= MOST_VALUES


@pytest.mark.parametrize("seed", list(filter(small, range(600, 640))))
def test_brute_force_finds_no_lower_cost(seed: int) -> None:
    trace = program(seed, 3)
    graph = with_scope_exit(graph_of(trace, small_result_bytes=0))
    for budget in budgets_of(trace):
        least = brute_force(graph, budget)
        found = optimum(trace, budget, time_limit=5, small_result_bytes=0, tier=PRICE)
        if least is None:
            continue  # the optimum may use copies of overwritten values
        assert found.bound is not None and found.bound <= least + 1e-5
        if found.status == "optimal":
            assert found.time_ratio is not None and found.time_ratio <= least + 2e-4


def test_a_spill_tier_never_adds_cost() -> None:
    """The programs include optima with copies, with replays, with both and with neither."""
    kinds = set()
    for seed in range(700, 720):
        trace = program(seed, 10)
        for budget in budgets_of(trace):
            with_tier, without = (
                optimum(trace, budget, time_limit=5, small_result_bytes=0, tier=tier)
                for tier in (PRICE, None)
            )
            if with_tier.bound is None:
                assert without.bound is None
                continue
            if without.status == "optimal" and without.time_ratio is not None:
                assert with_tier.bound <= without.time_ratio + 1e-5
            made = with_tier.schedule
            if made is not None and with_tier.status == "optimal":
                kinds.add((made.replay_cost_ns > 0, made.copy_cost_ns > 0))
    assert kinds >= {(False, False), (True, False), (False, True), (True, True)}
