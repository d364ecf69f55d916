"""The optimum of a trace, compared with a recount, brute force, and the engine."""

import heapq
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

import recoup
from command import cli, cli_here, refused
from recoup.offline import _C
from recoup.offline.graph import Graph, graph_of
from recoup.offline.optimum import optimum
from recoup.offline.optimum_model import with_scope_exit
from recoup.offline.schedule import Schedule

UNIT = 64
# All policies that stay within the budget.
POLICIES = [each.name for each in recoup.policies(simulated=True) if each.name != "unbounded"]
# Only the costs that the optimum counts.
EXACT: dict[str, Any] = {
    "small_result_bytes": 0,
    "small_filter": False,
    "sampling": False,
    "max_replay_ratio": 0,
    "max_time_ratio": 0,
    "layout": False,
}


class Program:
    """A trace of a random program: ops with one or two results, in-place writes, deaths."""

    def __init__(self, seed: int, ops: int, unit: int = UNIT, slowness: int = 1) -> None:
        self.draw = random.Random(seed)
        self.unit, self.slowness = unit, slowness
        self.builder = _C.TraceBuilder()
        self.builder.add_name("op")
        self.kernels = 0
        self.live: list[int] = []
        self.storages = 0
        for _ in range(self.draw.randint(1, 2)):
            self.builder.add_event("external", 0, unit)
            self.add_storage()
        for _ in range(ops):
            self.add_op()
            while len(self.live) > 1 and self.draw.random() < 0.25:
                self.die(self.draw.choice(self.live))
        # A backward pass: all live values are read once more, the newest first.
        for storage in sorted(self.live, reverse=True)[: max(1, ops // 2)]:
            self.add_op([storage])
        if self.draw.random() < 0.5:
            self.builder.add_event("scope_exit", 0, 0)

    def add_storage(self) -> None:
        self.live.append(self.storages)
        self.storages += 1

    def die(self, storage: int) -> None:
        self.builder.add_event("die", storage, 0)
        self.live.remove(storage)

    def add_op(self, reads: list[int] | None = None) -> None:
        draw = self.draw
        if reads is None:
            recent = self.live[-4:] if draw.random() < 0.7 else self.live
            reads = draw.sample(recent, min(len(recent), draw.randint(1, 2)))
        uses = []
        for storage in reads:
            written = draw.random() < 0.2
            overwritten = written and draw.random() < 0.2
            uses.append((storage, not overwritten, written, overwritten))
        writes = any(written for _, _, written, _ in uses)
        count = draw.choice([0, 1]) if writes else draw.choice([1, 1, 1, 2])
        fresh = [self.unit * draw.randint(1, 4) for _ in range(count)]
        self.builder.add_kernel(fresh)
        cost = (draw.choice([0, 1, 3, 10, 30]) * 1000 + 1000) * self.slowness
        self.builder.add_op(0, self.kernels, cost, draw.random() < 0.97, uses, fresh)
        self.kernels += 1
        for _ in fresh:
            self.add_storage()

    def trace(self) -> recoup.Trace:
        return recoup.Trace(self.builder.build())


def budgets_of(trace: recoup.Trace) -> list[int]:
    peak = trace.unbudgeted_peak_bytes()
    return sorted(
        {peak * fraction // 100 // UNIT * UNIT for fraction in (95, 88, 80, 70)}, reverse=True
    )


# ---- no policy is below the bound ----


@pytest.mark.parametrize("seed", range(60))
def test_no_policy_is_below_the_bound(seed: int) -> None:
    trace = Program(seed, 4 + seed % 12).trace()
    for budget in budgets_of(trace):
        found = optimum(trace, budget, time_limit=5, small_result_bytes=0)
        for policy in POLICIES:
            run = trace.simulate(budget, recoup.SimulationOptions(policy=policy, **EXACT))
            if run.status == "ok":
                assert found.bound is not None, (budget, policy)
                assert run.time_ratio >= found.bound - 1e-5, (budget, policy)


# ---- a recount of the schedule ----


def arriving(graph: Graph, at: int) -> set[int]:
    """The values from outside that are first needed by an op."""
    return {v for v, each in enumerate(graph.values) if each.producer is None and each.born == at}


def recount(graph: Graph, budget: int, schedule: Schedule) -> tuple[int, int]:
    """(peak in bytes, cost of replays in ns); fails if the schedule is invalid."""
    values, resident, done, peak, cost = graph.values, arriving(graph, 0), 0, 0, 0

    def held(v: int) -> bool:
        value = values[v]
        there = value.born + (value.producer is not None) <= done < value.dies
        return there and not value.recomputable

    for step in schedule.steps:
        if step.kind == "drop":
            assert step.index in resident and not held(step.index)
            resident.remove(step.index)
            continue
        op, first = graph.ops[step.index], step.index == done
        assert step.index <= done and resident.issuperset(op.inputs)
        before = {values[v].before for v in op.outputs} - {None}
        assert resident.issuperset(step.taken) and before.issuperset(step.taken)
        if first:  # no bytes of an overwritten value may stay, unless it is non-recomputable
            assert not {v for v in before & resident if values[v].recomputable} - set(step.taken)
        else:
            cost += op.cost_ns
            assert all(values[v].recomputable for v in step.taken)
        used = sum(values[v].size_bytes for v in resident) + op.kernel_bytes
        used += sum(
            values[v].size_bytes
            for v in op.outputs
            if values[v].before is not None and values[v].before not in step.taken
        )
        peak = max(peak, used)
        resident -= set(step.taken)
        resident |= {v for v in op.outputs if first or values[v].recomputable}
        done += first
        resident |= arriving(graph, done) if first else set()
        assert all(v in resident for v in range(len(values)) if held(v))
    assert done == len(graph.ops)
    assert peak <= budget
    return peak, cost


@pytest.mark.parametrize("seed", range(100, 140))
def test_the_figures_of_a_schedule_are_right(seed: int) -> None:
    trace = Program(seed, 6 + seed % 20).trace()
    graph = with_scope_exit(graph_of(trace, small_result_bytes=0))
    plain = sum(op.cost_ns for op in graph.ops)
    for budget in budgets_of(trace):
        found = optimum(trace, budget, time_limit=2, small_result_bytes=0)
        if found.schedule is not None:
            peak, cost = recount(graph, budget, found.schedule)
            assert (peak, cost) == (found.schedule.peak_bytes, found.schedule.replay_cost_ns)
            assert found.time_ratio == 1 + cost / plain
            assert found.bound is not None and found.bound <= found.time_ratio + 1e-5


# ---- brute force ----


def brute_force(graph: Graph, budget: int) -> float | None:
    """The least time ratio over all sequences of runs and drops; None if no sequence fits."""
    values, ops = graph.values, graph.ops
    plain = sum(op.cost_ns for op in ops)

    def runs(done: int, resident: frozenset[int], i: int) -> list[frozenset[int]]:
        """The possible sets of resident values after op `i`, by the values that it overwrites."""
        op, first = ops[i], i == done
        if not resident.issuperset(op.inputs):
            return []
        written = {values[v].before: v for v in op.outputs if values[v].before is not None}
        there = [v for v in written if v in resident]
        if first:
            free = [v for v in there if not values[v].recomputable]
        else:
            free = there = [v for v in there if values[v].recomputable and v in op.inputs]
        found = []
        for chosen in range(1 << len(free)):
            copied = {v for bit, v in enumerate(free) if chosen >> bit & 1}
            taken = set(there) - copied
            used = sum(values[v].size_bytes for v in resident) + op.kernel_bytes
            used += sum(values[a].size_bytes for b, a in written.items() if b not in taken)
            if used <= budget:
                made = {v for v in op.outputs if first or values[v].recomputable}
                found.append(resident - taken | made)
        return found

    best = {(0, frozenset(arriving(graph, 0))): 0}
    heap = [(0, 0, sorted(arriving(graph, 0)))]
    while heap:
        cost, done, listed = heapq.heappop(heap)
        resident = frozenset(listed)
        if done == len(ops):
            return 1 + cost / plain
        if cost > best[done, resident]:
            continue
        following = [
            (0, done + 1, after | arriving(graph, done + 1)) for after in runs(done, resident, done)
        ]
        for i in range(done):
            if any(values[v].recomputable for v in ops[i].outputs):
                following += [(ops[i].cost_ns, done, after) for after in runs(done, resident, i)]
        for v in resident:
            if values[v].recomputable or done >= values[v].dies:
                following.append((0, done, resident - {v}))
        for more, position, after in following:
            if cost + more < best.get((position, after), 1 << 60):
                best[position, after] = cost + more
                heapq.heappush(heap, (cost + more, position, sorted(after)))
    return None


@pytest.mark.parametrize("seed", range(200, 240))
def test_the_optimum_equals_that_of_brute_force(seed: int) -> None:
    trace = Program(seed, 3 + seed % 3).trace()
    graph = with_scope_exit(graph_of(trace, small_result_bytes=0))
    for budget in budgets_of(trace):
        least = brute_force(graph, budget)
        found = optimum(trace, budget, time_limit=5, small_result_bytes=0)
        if least is None:
            assert found.time_ratio is None
        else:
            assert found.bound is not None and found.bound <= least + 1e-5
            assert found.time_ratio is None or found.time_ratio >= least - 1e-9
        if found.status == "optimal":
            assert found.time_ratio == pytest.approx(least, abs=2e-4)


def test_untracked_values_only_lower_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recoup.offline.optimum._FIRST_VALUES", 2)
    for seed in range(300, 320):
        trace = Program(seed, 3 + seed % 3).trace()
        graph = with_scope_exit(graph_of(trace, small_result_bytes=0))
        for budget in budgets_of(trace):
            found = optimum(trace, budget, time_limit=0.2, small_result_bytes=0)
            least = brute_force(graph, budget)
            if least is not None:
                assert found.bound is not None and found.bound <= least + 1e-5


# ---- results ----


def chain(length: int) -> recoup.Trace:
    """A chain of ops of equal cost, forward and backward."""
    builder = _C.TraceBuilder()
    builder.add_name("op")
    builder.add_kernel([UNIT])
    for i in range(length):
        builder.add_op(0, 0, 1000, True, [(i - 1, True, False, False)] if i else [], [UNIT])
    for i in reversed(range(length)):
        reads = [(i, True, False, False)]
        reads += [(2 * length - 2 - i, True, False, False)] if i < length - 1 else []
        builder.add_op(0, 0, 1000, True, reads, [UNIT])
        for storage, *_ in reads:
            builder.add_event("die", storage, 0)
    builder.add_name("step")
    builder.add_event("step", 1, 0)
    return recoup.Trace(builder.build())


def test_the_optimum_of_a_chain() -> None:
    trace = chain(8)
    peak = trace.unbudgeted_peak_bytes()
    assert peak == 9 * UNIT
    found = [optimum(trace, units * UNIT, small_result_bytes=0) for units in range(9, 1, -1)]
    assert [each.status for each in found] == ["optimal"] * 7 + ["infeasible"]
    replays = [each.schedule.replay_cost_ns // 1000 for each in found if each.schedule is not None]
    # In three units, each value is recomputed from the first one: 6 + 5 + ... + 1 replays.
    assert replays == [0, 1, 2, 3, 4, 7, 21]
    assert found[-1].time_ratio is None and found[-1].bound is None and found[-1].gap is None
    row = found[3].to_dict()
    assert row["status"] == "optimal" and "schedule" not in row and row["gap"] == found[3].gap


def test_bad_arguments() -> None:
    for arguments in ({"budget_bytes": 0}, {"budget_bytes": 1, "time_limit": 0.0}):
        with pytest.raises(ValueError, match="got 0"):
            optimum(chain(2), **arguments)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out, plot = (tmp_path / name for name in ("chain.rtrace", "out.json", "out.png"))
    chain(6).write(path)
    arguments = ["simulate", path, "--optimum", "--time-limit", 5, "--json", out]
    # All values of the chain are small, so none can be evicted.
    shown = cli_here(capsys, *arguments, "--budgets", "100,80", "--plot", plot)
    assert shown.returncode == 0, shown.stderr
    assert "optimum" in shown.stdout
    optima = json.loads(out.read_text())["optima"]
    assert [row["status"] for row in optima] == ["optimal", "infeasible"]
    assert optima[0]["time_ratio"] == 1 and optima[1]["time_ratio"] is None
    assert plot.read_bytes().startswith(b"\x89PNG")
    out.unlink()
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['scipy'] = None\n")
    # In a new process, which has not loaded SciPy.
    without = cli(*arguments, env=dict(os.environ, PYTHONPATH=str(tmp_path)))
    assert without.returncode != 0 and without.stderr.count("\n") == 1
    assert "--optimum needs SciPy: pip install 'recoup[optimum]'" in without.stderr
    assert "measured costs" in refused(capsys, *arguments, "--option", "cost_model=bytes")
    assert "above 0 s" in refused(capsys, *arguments, "--time-limit", "0")
    assert not out.exists()
