"""`recoup order` and Trace.order. The orders have tests in tests/core/offline/order_test.cpp."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import recoup
from command import cli_here, refused
from recoup.offline import layout
from recoup.offline.order import long_life_rules, traversals


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("order") / "run.rtrace"
    with recoup.trace(path):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(), nn.Linear(128, 64))
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(2):
            x = torch.randn(32, 64)
            first = torch.zeros(32, 64)  # long before its first use
            loss = (model(x) + first).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss.item()
    return path


def test_every_order_of_a_real_trace(run: Path) -> None:
    trace = recoup.Trace.read(run)
    for traversal in traversals():
        alone = trace.order(traversal=traversal.name, long_life="none")
        for rule in long_life_rules():
            order = trace.order(traversal=traversal.name, long_life=rule.name)
            assert sorted(order.ops) == list(range(trace.op_count))
            assert order.bound_bytes <= alone.bound_bytes
            made = trace.reordered(order.ops)
            planned = layout.plan(made.buffers(), planner="bound")
            assert planned.size_bytes == order.bound_bytes
            assert made.steps() == trace.steps()
    ops = trace.order(traversal="program", long_life="none").ops
    assert ops == tuple(range(trace.op_count))
    zeros = [i for i, op in enumerate(trace.ops()) if op.name == "aten::zeros"]
    moved = trace.order(traversal="program", long_life="fixed").ops
    assert moved.index(zeros[0]) > zeros[0]


def test_a_reordered_trace_can_be_written_and_simulated(run: Path, tmp_path: Path) -> None:
    trace = recoup.Trace.read(run)
    made = trace.reordered(trace.order(traversal="dfs").ops)
    made.write(tmp_path / "made.rtrace")
    again = recoup.Trace.read(tmp_path / "made.rtrace")
    assert again.ops() == made.ops()
    simulation = again.simulate(2 * again.unbudgeted_peak_bytes())
    assert (simulation.status, simulation.ops) == ("ok", trace.op_count)
    assert simulation.stats.replays == 0


def test_invalid_orders_are_refused_by_name(run: Path) -> None:
    trace = recoup.Trace.read(run)
    with pytest.raises(
        ValueError, match="unknown traversal 'best'; choose one of program, bfs, dfs"
    ):
        trace.order(traversal="best")
    with pytest.raises(ValueError, match="unknown long-life rule 'long'"):
        trace.order(long_life="long")
    with pytest.raises(ValueError, match="illegal order: the order has 1 ops"):
        trace.reordered([0])
    with pytest.raises(ValueError, match=r"illegal order: op \d+ \(aten::"):
        trace.reordered(range(trace.op_count)[::-1])


def test_command(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, made = tmp_path / "out.json", tmp_path / "made.rtrace"
    shown = cli_here(capsys, "order", run, "--json", out, "--write", made)
    assert shown.returncode == 0, shown.stderr
    rows = json.loads(out.read_text(encoding="utf-8"))["orders"]
    assert len(rows) == len(traversals()) * len(long_life_rules())
    least = min(rows, key=lambda row: row["bound_bytes"])
    assert least["bound_bytes"] <= least["program_bound_bytes"]
    for row in rows:
        assert f" {row['bound_bytes']:,} " in shown.stdout
    planned = layout.plan(recoup.Trace.read(made).buffers(), planner="bound")
    assert planned.size_bytes == least["bound_bytes"]
    lines = cli_here(capsys, "order", run, "--order", "dfs", "--long-life", "fixed").stdout
    assert sum(line.startswith("dfs ") for line in lines.splitlines()) == 1


def test_bad_input_is_one_line(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = run.read_bytes()
    cut, version = tmp_path / "cut.rtrace", tmp_path / "version.rtrace"
    cut.write_bytes(data[:-20])
    version.write_bytes(data[:8] + b"\x63\x00\x00\x00" + data[12:])
    out = tmp_path / "out.json"
    for arguments, words in (
        ([tmp_path / "none.rtrace"], "No such file"),
        ([cut], "offset"),
        ([version], "version 99"),
        ([run, "--order", "best"], "--order 'best' is not one of program, bfs, "),
        (
            [run, "--long-life", "long"],
            "--long-life 'long' is not one of none, fixed, dynamic, all",
        ),
        (
            [run, "--write", tmp_path / "no" / "x.rtrace"],
            "--write cannot be written: there is no directory",
        ),
    ):
        assert words in refused(capsys, "order", *arguments, "--json", out)
        assert not out.exists()
