"""Traces of real runs, and the simulator, which runs the engine itself."""

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import recoup
from command import cli, cli_here, refused
from dtr_logs import Row, call, memory, write_log
from recoup._reporting.moments import chrome_trace
from recoup.bench.nets.tiny import net_named
from recoup.commands.simulate.checks import parse_budgets
from recoup.offline import layout
from train import HUGE, train, variant_named

STEPS = 2
NETS = ("char_gpt", "resnet", "tree_lstm")


def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def record(path: Path, steps: int = 3) -> tuple[recoup.Trace, recoup.Stats]:
    with recoup.trace(path) as run:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(), nn.Linear(128, 64))
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(steps):
            step(model, optimizer, torch.randn(32, 64))
    return recoup.Trace.read(path), run.stats()


# ---- recordings ----


def test_lifetimes_of_a_trace(tmp_path: Path) -> None:
    trace = recoup.read_dtr_log(write_log(tmp_path / "small.log", LOG))
    assert [(b.name, b.lower, b.upper, b.size_bytes) for b in trace.buffers()] == [
        ("external#0", 0, 3, 640),
        ("relu#1", 0, 3, 6400),
        ("mul#2", 2, 3, 12800),
    ]
    real, stats = record(tmp_path / "run.rtrace")
    planned = layout.plan(real.buffers(), planner="search", alignment=64, check=True)
    assert planned.bound_bytes <= planned.size_bytes <= 1.01 * planned.bound_bytes
    assert 0.9 * stats.peak_bytes < planned.bound_bytes < 1.1 * stats.peak_bytes


def test_a_trace_agrees_with_the_run(tmp_path: Path) -> None:
    trace, stats = record(tmp_path / "run.rtrace")
    assert trace.op_count == stats.op_count
    assert trace.steps() == 3
    assert trace.unbudgeted_peak_bytes() == stats.peak_bytes
    ops = trace.ops()
    assert sum(op.cost_ns for op in ops) == stats.op_ns
    names = [op.name for op in ops]
    assert names.count("aten::addmm") == 6 and "aten::mm" in names
    dropouts = [op for op in ops if op.random and op.repeatable and "bernoulli" in op.name]
    assert len(dropouts) == 3
    assert any(written for op in ops for _, _, written in op.operands)
    copy = tmp_path / "copy.rtrace"
    trace.write(copy)
    assert recoup.Trace.read(copy).ops() == ops


def test_a_trace_file_appears_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "run.rtrace"
    with recoup.trace(path) as run:
        torch.ones(1000).sum()
        run.mark_step("mine")
        assert not path.exists()
    assert recoup.Trace.read(path).steps() == 1
    with pytest.raises(ZeroDivisionError), recoup.trace(tmp_path / "failed.rtrace"):
        torch.ones(1000).sum()
        _ = 1 / 0
    assert recoup.Trace.read(tmp_path / "failed.rtrace").op_count == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["failed.rtrace", "run.rtrace"]


def test_a_trace_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), recoup.trace(tmp_path / "no" / "run.rtrace"):
        pass
    with pytest.raises(IsADirectoryError), recoup.trace(tmp_path):
        torch.ones(1000).sum()
    with recoup.budget("1MiB"):  # no scope is left open
        pass


def test_a_run_in_a_budget_records_the_same_trace(tmp_path: Path) -> None:
    model = nn.Linear(256, 256)

    def run(budget: int, path: Path) -> list[recoup.TracedOp]:
        with recoup.budget(budget, trace=path, options=recoup.Options(cost_model="bytes")) as scope:
            x = torch.ones(64, 256)
            for _ in range(12):
                x = model(x).sin()
            x.sum().backward()
        assert (scope.stats().evictions > 0) == (budget < HUGE)
        model.zero_grad()
        return recoup.Trace.read(path).ops()

    free = run(HUGE, tmp_path / "free.rtrace")
    tight = run(1_100_000, tmp_path / "tight.rtrace")
    assert [(op.name, op.operands, op.fresh_bytes, op.cost_ns) for op in tight] == [
        (op.name, op.operands, op.fresh_bytes, op.cost_ns) for op in free
    ]


def test_a_trace_and_decisions_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="cannot be combined"):
        recoup.budget("1MiB", trace="x.rtrace", profile="decisions")


def test_a_step_can_be_extracted_as_a_trace(tmp_path: Path) -> None:
    trace, _ = record(tmp_path / "run.rtrace")
    ops = trace.ops()
    steps = [trace.step(index) for index in range(3)]
    costs = [op.cost_ns for step in steps for op in step.ops()]
    assert costs == [op.cost_ns for op in ops[: len(costs)]]
    assert all(step.steps() == 1 for step in steps)
    assert steps[1].ops() != steps[2].ops() == trace.step().ops() == trace.step(-1).ops()
    peaks = [step.unbudgeted_peak_bytes() for step in steps]
    assert max(peaks) == trace.unbudgeted_peak_bytes() and peaks[1] == peaks[2]
    for index in (3, -4):
        with pytest.raises(ValueError, match=f"step {index} does not exist: the trace has 3"):
            trace.step(index)


# ---- simulations against live runs ----


@pytest.fixture(scope="module", params=NETS)
def traced(request: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, recoup.Trace]:
    path = tmp_path_factory.mktemp("traces") / "run.rtrace"
    train(net_named(request.param), variant_named("plain"), STEPS, HUGE, "dtr", trace=path)
    return request.param, recoup.Trace.read(path)


@pytest.mark.parametrize("policy", [policy.name for policy in recoup.policies()])
def test_a_simulation_makes_the_decisions_of_the_live_run(
    traced: tuple[str, recoup.Trace], policy: str
) -> None:
    name, trace = traced
    budget = int(trace.unbudgeted_peak_bytes() * 0.7)
    options: dict[str, Any] = {"policy": policy, "cost_model": "bytes", "planning": "wait"}
    run = train(
        net_named(name), variant_named("plain"), STEPS, budget, profile="decisions", **options
    )
    simulation = trace.simulate(
        budget, recoup.SimulationOptions(max_time_ratio=0, **options), decisions=True
    )
    assert simulation.status == "ok"
    assert run.decisions and simulation.decisions == run.decisions
    assert simulation.stats.peak_bytes == run.stats.peak_bytes
    assert simulation.stats.replay_cost_ns == run.stats.replay_cost_ns


@pytest.mark.parametrize("policy", [p.name for p in recoup.policies() if p.kinetic])
def test_a_kinetic_order_makes_the_decisions_of_a_full_search(
    traced: tuple[str, recoup.Trace], policy: str
) -> None:
    _, trace = traced
    for percent in (90, 70, 50, 30):
        budget = trace.unbudgeted_peak_bytes() * percent // 100
        through_all, in_order = (
            trace.simulate(
                budget,
                recoup.SimulationOptions(policy=policy, sampling=False, kinetic=kinetic),
                decisions=True,
            )
            for kinetic in (False, True)
        )
        assert in_order.status == through_all.status
        assert in_order.decisions == through_all.decisions


def test_expensive_moves_are_avoided(traced: tuple[str, recoup.Trace]) -> None:
    _, trace = traced
    budget = int(trace.unbudgeted_peak_bytes() * 0.6)
    cheap, expensive = (
        trace.simulate(
            budget, recoup.SimulationOptions(move_ns_per_byte=price, cost_model="bytes")
        ).stats
        for price in (0.001, 10_000.0)
    )
    assert cheap.moved_bytes > 0
    assert expensive.moved_bytes < cheap.moved_bytes


# ---- layouts and orders ----


def test_ge_and_orders_of_a_real_net(traced: tuple[str, recoup.Trace]) -> None:
    _, trace = traced
    for ops in ([], trace.layout_ops()):
        planned = layout.plan(trace.buffers(), planner="ge", ops=ops, alignment=64, check=True)
        assert planned.size_bytes <= 1.05 * planned.bound_bytes
    order = trace.order(long_life="dynamic")
    assert order.moves > 0
    assert order.bound_bytes <= order.program_bound_bytes


# ---- results ----


def test_results_of_a_simulation(tmp_path: Path) -> None:
    trace, _ = record(tmp_path / "run.rtrace", steps=1)
    peak = trace.unbudgeted_peak_bytes()
    free = trace.simulate(2 * peak)
    assert (free.status, free.time_ratio, free.stats.evictions) == ("ok", 1.0, 0)
    assert free.ops == trace.op_count
    small = trace.simulate(5000)
    assert small.status == "out of budget" and "the budget of 4.9 KiB" in small.reason
    assert small.ops < trace.op_count
    assert not small.decisions
    assert (
        trace.simulate(
            peak * 9 // 10, recoup.SimulationOptions(max_time_ratio=1.0, policy="lru")
        ).status
        != "ok"
    )
    with pytest.raises(ValueError):
        trace.simulate(peak, recoup.SimulationOptions(policy="best"))
    with pytest.raises(ValueError):
        trace.simulate(0)


def test_a_timeline_agrees_with_the_simulation(tmp_path: Path) -> None:
    with recoup.trace(tmp_path / "run.rtrace") as run:
        start = x = torch.ones(64, 256, requires_grad=True)
        for _ in range(12):
            x = x.sin()
        x.sum().backward()
        del x
        run.mark_step()
    assert start.grad is not None
    trace = recoup.Trace.read(tmp_path / "run.rtrace")
    budget = trace.unbudgeted_peak_bytes() * 6 // 10
    simulation = trace.simulate(budget)
    moments = trace.timeline(budget)
    kinds = [moment.kind for moment in moments]
    assert kinds.count("op") == simulation.ops == trace.op_count
    assert kinds.count("replay") == simulation.stats.replays > 0
    assert kinds.count("evict") == simulation.stats.evictions > 0
    assert kinds.count("step") == 1
    assert max(moment.charged_bytes for moment in moments) <= budget
    ends = [moment.start_ns + moment.cost_ns for moment in moments]
    assert [moment.start_ns for moment in moments] == [0, *ends[:-1]]
    assert ends[-1] == simulation.plain_cost_ns + simulation.replay_cost_ns
    drawn = chrome_trace(moments, budget)["traceEvents"]
    assert sum(event["ph"] == "X" for event in drawn) == kinds.count("op") + kinds.count("replay")
    assert json.loads(json.dumps(drawn)) == drawn


# ---- logs of the DTR authors ----


LOG = [
    {"INSTRUCTION": "ANNOTATE", "ANNOTATION": "START"},
    {"INSTRUCTION": "CONSTANT", "NAME": "w"},
    *memory("w", 640, None),
    call("relu", ["w"], ["a"], 10),
    *memory("a", 6400),
    call("view", ["a"], ["v"], 1),
    *memory("v", 0, 0),
    {"INSTRUCTION": "RELEASE", "NAME": "a"},
    {"INSTRUCTION": "COPY", "DST": "v2", "SRC": "v"},
    {"INSTRUCTION": "RELEASE", "NAME": "v"},
    {"INSTRUCTION": "MUTATE", "NAME": "add_", "ARGS": ["v2", "w"], "MUTATE": [0], "TIME": "5"},
    call("mul", ["v2", "w"], ["b"], 20),
    *memory("b", 12800),
    {"INSTRUCTION": "RELEASE", "NAME": "v2"},
    {"INSTRUCTION": "RELEASE", "NAME": "b"},
]


@pytest.mark.parametrize("suffix", [".log", ".log.gz"])
def test_import_of_a_dtr_log(tmp_path: Path, suffix: str) -> None:
    trace = recoup.read_dtr_log(write_log(tmp_path / f"small{suffix}", LOG))
    assert [(op.name, op.cost_ns, op.operands, op.fresh_bytes) for op in trace.ops()] == [
        ("relu", 10, [(0, True, False)], [6400]),
        ("add_", 5, [(1, True, True), (0, True, False)], []),
        ("mul", 20, [(1, True, False), (0, True, False)], [12800]),
    ]
    assert trace.unbudgeted_peak_bytes() == 640 + 6400 + 12800
    assert trace.steps() == 1


@pytest.mark.parametrize(
    ("line", "row", "words"),
    [
        (3, {"INSTRUCTION": "CONSTANT"}, "line 3.*NAME"),
        (4, {"INSTRUCTION": "JUMP"}, "line 4.*unknown instruction 'JUMP'"),
        (4, call("relu", ["missing"], ["a"], 1), "missing"),
        (3, memory("w", -1, None)[0], "line 3.*-1 is negative"),
        (3, memory("w", 10**30, None)[0], "line 3.*not a whole number of at most 20 digits"),
        (3, memory("w", 10**18, None)[0], "line 3.*maximum, 140737488355328"),
        (4, call("relu", ["w"], ["a"], 10**17), "line 4.*maximum, 9007199254740992"),
        (4, call("relu" * 1000, ["w"], ["a"], 1), "line 4.*more than 1024 characters"),
        (4, call("relu\ud800", ["w"], ["a"], 1), "line 4.*surrogates not allowed"),
        (4, {**call("relu", ["w"], ["a"], 1), "ARGS": "[" * 100_000}, "line 4.*nested too deeply"),
        (4, {**call("relu", ["w"], ["a"], 1), "ARGS": [["w"]]}, "line 4.*is not a name"),
        (4, {**call("relu", ["w"], ["a"], 1), "TIME": 1.5}, "line 4.*not a whole number"),
        (6, memory("a", 1, 7)[1], "argument 7 does not exist"),
    ],
)
def test_bad_dtr_logs(tmp_path: Path, line: int, row: Row, words: str) -> None:
    rows = list(LOG)
    rows[line - 1] = row
    with pytest.raises(ValueError, match=words):
        recoup.read_dtr_log(write_log(tmp_path / "bad.log", rows))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("[]", "not a JSON object"),
        ("{", "Expecting"),
        ("\xff", "codec"),
        ("[" * 10**5, "nested too deeply"),
    ],
)
def test_invalid_lines_are_refused(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "bad.log"
    path.write_bytes(line.encode("latin-1") + b"\n")
    with pytest.raises(ValueError, match=f"line 1: .*{words}"):
        recoup.read_dtr_log(path)


@pytest.mark.parametrize("suffix", [".log", ".log.gz"])
def test_a_line_without_an_end_needs_little_memory(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"long{suffix}"
    opener = gzip.open if suffix == ".log.gz" else open
    with opener(path, "wb") as file:
        file.write(b'{"INSTRUCTION": "')
        for _ in range(256):
            file.write(b"x" * 2**20)
    code = (
        "import recoup, resource, sys\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try:\n"
        "    recoup.read_dtr_log(sys.argv[1])\n"
        "except ValueError as error:\n"
        "    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before\n"
        "    print(grown, error)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, check=True
    )
    grown, words = result.stdout.split(" ", 1)
    assert int(grown) < 64 * 1024
    assert "line 1: the line is longer than 1048576 bytes" in words


def test_a_file_that_is_not_gzip_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.log.gz"
    path.write_bytes(b"{}")
    with pytest.raises(ValueError, match="line 1: not a gzip file"):
        recoup.read_dtr_log(path)


# ---- the command ----


def test_run_trace_then_simulate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import torch\n"
        "x = torch.ones(64, 64)\n"
        "kept = [x := x.sin() for _ in range(20)]\n"
        "print(sum(k.sum() for k in kept).item())\n"
        "del x, kept\n"
    )
    trace, out, plot = (tmp_path / name for name in ("run.rtrace", "out.json", "out.png"))
    ran = cli("run", "--trace", trace, script)
    assert ran.returncode == 0 and float(ran.stdout) > 0, ran.stderr
    shown = cli_here(
        capsys, "simulate", trace, "--policy", "dtr", "lru", "--budgets", "100..40:30",
        "--json", out, "--plot", plot,
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    assert "dtr" in shown.stdout and "100 %" in shown.stdout
    result = json.loads(out.read_text())
    assert [(row["policy"], row["status"]) for row in result["rows"]] == [
        (policy, "ok") for policy in ("dtr", "lru") for _ in range(3)
    ]
    assert result["rows"][0]["time_ratio"] == 1.0 < result["rows"][2]["time_ratio"]
    assert plot.read_bytes().startswith(b"\x89PNG")
    in_order = cli(
        "simulate", trace, "--policy", "dtr", "lru", "--budgets", "40", "--option", "sampling=false"
    )
    assert in_order.returncode == 0, in_order.stderr


def test_bad_arguments_of_simulate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, _ = tmp_path / "run.rtrace", record(tmp_path / "run.rtrace", steps=1)
    out = tmp_path / "out.json"
    cut = tmp_path / "cut.rtrace"
    cut.write_bytes(trace.read_bytes()[:-20])
    empty = tmp_path / "empty.rtrace"
    empty.write_bytes(trace.read_bytes()[:12] + bytes(12))
    for arguments, words in (
        ([tmp_path / "none.rtrace"], "No such file"),
        ([__file__], "offset 0: not a recoup trace"),
        ([cut], "offset"),
        ([trace, "--policy", "best"], "is not one of planned"),
        ([trace, "--budgets", "0"], "above 0 %"),
        ([trace, "--budgets", "100..0"], "must end at 1 % or more"),
        ([trace, "--budgets", "1" + "0" * 30], "at most 1000000 %"),
        ([trace, "--budgets", "inf"], "at most 1000000 %"),
        ([trace, "--budgets", "1" + "0" * 30 + "B"], "at most 4611686018427387904 bytes"),
        ([trace, "--budgets", "1..1" + "0" * 10], "at most 10000 %"),
        (
            [trace, "--option", "seed=1" + "0" * 30],
            "--option seed must be a whole number from 0 to",
        ),
        ([trace, "--max-time-ratio", "nan"], "--max-time-ratio must be 0 or more"),
        ([empty], "no budget to simulate"),
        ([trace, "--jobs", "0"], "--jobs must be 1 or more"),
        (
            [trace, "--budgets", "100B"],
            "no budget is enough; with policy planned: recoup: out of budget in ",
        ),
        ([trace, "--timeline", tmp_path / "t.json"], "one policy, one budget"),
    ):
        assert words in refused(capsys, "simulate", *arguments, "--json", out)
        assert not out.exists()


def test_budgets_of_the_command() -> None:
    assert parse_budgets("100..70:10", 1000) == [1000, 900, 800, 700]
    assert parse_budgets("10..12", 1000) == [100, 110, 120]
    assert parse_budgets("50, 12.5, 2KiB", 1000) == [500, 125, 2048]
