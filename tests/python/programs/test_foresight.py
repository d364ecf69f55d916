"""The policy `planned` on real nets: bits are unchanged, and repeating steps get eviction lists."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import recoup
from recoup.bench.nets.tiny import net_named
from train import HUGE, train, variant_named

STEPS = 10
# With more threads, convolutions have larger workspaces: another peak and other addresses.
NETS = (("char_gpt", 0.55, 1), ("resnet", 0.45, 1), ("resnet", 0.45, 2))


def cost(run: Any) -> float:
    """The cost of replays and moves, as the engine prices them: replays by their bytes.

    A simulation also has a cost by measured times, which one stall of the recorded run can change.
    """
    return float(run.stats.replay_cost_ns + 3000 * run.stats.moves + 0.1 * run.stats.moved_bytes)


@pytest.mark.usefixtures("usual_threads")
@pytest.mark.parametrize(("name", "fraction", "threads"), NETS)
def test_a_simulation_makes_the_list_of_a_run_and_it_changes_no_bit(
    name: str, fraction: float, threads: int, tmp_path: Path
) -> None:
    torch.set_num_threads(threads)
    net, plain = net_named(name), variant_named("plain")
    path = tmp_path / "run.rtrace"
    whole = train(net, plain, STEPS, HUGE, "recoup", trace=path)
    trace = recoup.Trace.read(path)
    budget = int(trace.unbudgeted_peak_bytes() * fraction)
    options = recoup.Options(cost_model="bytes")
    run = train(
        net,
        plain,
        STEPS,
        budget,
        "planned",
        planning="wait",
        cost_model="bytes",
        profile="decisions",
    )
    assert run.bits == whole.bits
    assert run.stats.peak_bytes <= budget
    simulated = trace.simulate(
        budget, recoup.SimulationOptions(policy="planned", **vars(options)), decisions=True
    )
    assert simulated.decisions == run.decisions
    usual = trace.simulate(
        budget, recoup.SimulationOptions(policy="recoup", **vars(options)), decisions=True
    )
    assert simulated.decisions != usual.decisions
    assert cost(simulated) < cost(usual)
    assert run.stats.followed_steps > 0 and run.stats.listed_evictions > 0
    # The first steps with a list start with other values in memory than those planned for, and may
    # cost twice the plan. Then the engine makes another plan.
    assert run.stats.followed_cost_ns <= 1.25 * run.stats.followed_expected_ns
    step = trace.step()
    planned, usual = (
        step.simulate(budget, recoup.SimulationOptions(policy=policy, **vars(options)))
        for policy in ("planned", "recoup")
    )
    assert cost(planned) < cost(usual)


@pytest.mark.usefixtures("usual_threads")
@pytest.mark.parametrize("threads", [1, 2])
def test_with_planned_addresses_nothing_moves_and_nothing_is_searched(
    threads: int, tmp_path: Path
) -> None:
    torch.set_num_threads(threads)
    net, plain = net_named("gpt2"), variant_named("plain")
    whole = train(net, plain, 9, HUGE, "recoup")
    budget = int(whole.stats.peak_bytes * 0.7)
    path = tmp_path / "run.rtrace"
    options: dict[str, Any] = {"planning": "wait", "cost_model": "bytes"}
    shorter = train(net, plain, 6, budget, "planned", **options).stats
    run = train(net, plain, 9, budget, "planned", trace=path, **options)
    assert run.bits == whole.bits
    assert run.stats.peak_bytes <= budget
    assert run.stats.planned_blocks > shorter.planned_blocks > 0
    assert run.stats.evictions > shorter.evictions
    for name in ("moves", "misfits", "plans"):
        assert getattr(run.stats, name) == getattr(shorter, name), name
    # Threads of a kernel may allocate their workspaces in another order.
    assert run.stats.misplaced_blocks <= (0 if threads == 1 else 0.01 * run.stats.planned_blocks)
    simulated = recoup.Trace.read(path).simulate(
        budget, recoup.SimulationOptions(policy="planned", cost_model="bytes")
    )
    for name in ("planned_blocks", "misplaced_blocks", "evictions", "replays", "moves"):
        assert getattr(simulated.stats, name) == getattr(run.stats, name), name


def planned_blocks(budget: int, *, marks: bool) -> tuple[int, int]:
    """Trains a small net in a budget: the numbers of planned blocks and of steps with a plan.

    marks: marks each step, which the optimizer's step has already ended.
    """
    torch.manual_seed(0)
    options = recoup.Options(planning="wait", cost_model="bytes")
    with recoup.budget(budget, policy="planned", options=options) as run:
        layers = [torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh()) for _ in range(8)]
        net = torch.nn.Sequential(*layers)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(8):
            net(torch.randn(512, 64)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            if marks:
                run.mark_step("step")
    stats = run.stats()
    return stats.planned_blocks, stats.followed_steps


def test_a_mark_after_the_optimizers_step_changes_no_plan() -> None:
    marked, unmarked = (planned_blocks(1_800_000, marks=marks) for marks in (True, False))
    assert marked == unmarked
    assert min(marked) > 0


@pytest.mark.usefixtures("usual_threads")
@pytest.mark.parametrize(("name", "fraction", "threads"), [("char_gpt", 0.4, 1), ("bert", 0.4, 2)])
def test_with_a_tier_copies_are_planned_and_change_no_bit(
    name: str, fraction: float, threads: int, tmp_path: Path
) -> None:
    torch.set_num_threads(threads)
    net, plain = net_named(name), variant_named("plain")
    whole = train(net, plain, STEPS, HUGE, "recoup")
    budget = int(whole.stats.peak_bytes * fraction)
    path = tmp_path / "run.rtrace"
    options: dict[str, Any] = {"planning": "wait", "spill": "1GiB", "spill_dir": tmp_path}
    run = train(net, plain, STEPS, budget, "planned", trace=path, **options)
    assert run.bits == whole.bits
    assert run.stats.peak_bytes <= budget
    assert run.stats.planned_blocks > run.stats.allocations / 3
    assert run.stats.fetches > 0
    assert run.stats.spills > 0
    simulated = recoup.Trace.read(path).simulate(
        budget, recoup.SimulationOptions(policy="planned", spill="1GiB")
    )
    assert simulated.stats.planned_blocks > 0


def test_planning_on_a_thread_changes_no_bit() -> None:
    net, plain = net_named("char_gpt"), variant_named("plain")
    whole = train(net, plain, 12, HUGE, "recoup")
    budget = int(whole.stats.peak_bytes * 0.55)
    run = train(net, plain, 12, budget, "planned")
    assert run.bits == whole.bits
    assert run.stats.peak_bytes <= budget
    off = train(net, plain, 12, budget, "planned", planning="off")
    assert off.bits == whole.bits and off.stats.foreseen_steps == 0


@pytest.mark.parametrize("planning", ["wait", "background"])
def test_a_trace_records_the_lists_and_when_they_were_in_force(
    planning: str, tmp_path: Path
) -> None:
    net, plain = net_named("char_gpt"), variant_named("plain")
    budget = int(train(net, plain, 2, HUGE, "recoup").stats.peak_bytes * 0.55)
    path = tmp_path / "run.rtrace"
    options: dict[str, Any] = {"cost_model": "bytes"}
    run = train(net, plain, 12, budget, "planned", planning=planning, trace=path, **options)
    trace = recoup.Trace.read(path)
    simulated = trace.simulate(budget, recoup.SimulationOptions(policy="planned", **options))
    for name in ("evictions", "evicted_bytes", "replays", "moves", "moved_bytes", "peak_bytes"):
        assert getattr(simulated.stats, name) == getattr(run.stats, name), name
    assert simulated.stats.listed_evictions == run.stats.listed_evictions
    assert simulated.stats.eviction_lists == run.stats.eviction_lists
    if planning == "wait":
        assert run.stats.listed_evictions > 0
        # In another budget, the lists are made for that budget.
        more = trace.simulate(
            budget + (1 << 20), recoup.SimulationOptions(policy="planned", **options)
        )
        assert more.stats.foreseen_steps > 0 and more.stats.planning_ns > 0
        assert simulated.stats.planning_ns == 0


def test_a_program_without_step_marks_gets_the_default_policy(tmp_path: Path) -> None:
    path = tmp_path / "run.rtrace"
    with recoup.trace(path):
        x = torch.ones(200, 200, requires_grad=True)
        for _ in range(4):
            (x.exp().sin().cos() @ x).sum().backward()
    trace = recoup.Trace.read(path)
    budget = int(trace.unbudgeted_peak_bytes() * 0.8)
    planned, usual = (
        trace.simulate(
            budget, recoup.SimulationOptions(policy=policy, plan_ahead=False), decisions=True
        )
        for policy in ("planned", "recoup")
    )
    assert planned.decisions == usual.decisions


LEAVE = """
import os, sys, torch, recoup

how = sys.argv[1]
budget = recoup.budget("24MiB", policy="planned")
run = budget.__enter__()
x = torch.randn(400, 400, requires_grad=True)
for step in range(6):
    y = x
    for _ in range(60):
        y = (y * 1.001).sin()
    y.sum().backward()
    x.grad = None
    run.mark_step()
    if how == "fork" and step == 2:
        child = os.fork()
        if child == 0:
            (x[0, 0] * 2).item()  # PyTorch itself hangs where a child needs threads
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    if how == "exit" and step == 2:
        sys.exit(7)
    if how == "leave" and step == 2:
        break
budget.__exit__(None, None, None)
print("left", run.stats().evictions > 0)
"""


@pytest.mark.parametrize(("how", "code"), [("fork", 0), ("leave", 0), ("exit", 7)])
def test_planning_ends_at_the_exit_at_process_end_and_before_a_fork(how: str, code: int) -> None:
    command = [sys.executable, "-c", LEAVE, how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, done.stderr
    assert (done.stdout == "left True\n") == (code == 0), done.stderr
