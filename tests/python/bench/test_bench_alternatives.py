"""Alternatives to a budget, as `recoup bench` measures them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from command import cli, refused
from recoup.bench import runner
from recoup.bench.against import run_alternatives
from recoup.bench.alternatives import ALTERNATIVES, Alternative, alternatives_named
from recoup.bench.blocks import chains_of
from recoup.bench.judge import judged_peak_bytes
from recoup.bench.nets import NETS, Net, net_named
from recoup.bench.trial import record, train

CHECKPOINTS = alternatives_named(["checkpoint-block", "checkpoint-sqrt", "selective"])


def bits_that_differ(net: Net, alternative: Alternative) -> list[str]:
    _, plain = train(net, 1, seed=0)
    with alternative.around():
        _, bits = train(alternative.change(net), 1, seed=0)
    return [part for part in plain if bits[part] != plain[part]]


@pytest.mark.parametrize("net", NETS, ids=lambda net: net.name)
def test_checkpoints_change_no_bit_of_any_net(net: Net) -> None:
    normalizes = any(isinstance(module, nn.BatchNorm2d) for module in net.make().modules())
    for alternative in CHECKPOINTS[:2]:
        # A recomputed batch normalization counts its batch twice.
        assert bits_that_differ(net, alternative) == (["buffers"] if normalizes else [])


@pytest.mark.parametrize("net", NETS, ids=lambda net: net.name)
def test_every_net_names_its_blocks(net: Net) -> None:
    model = net.make()
    blocks = [block for chain in chains_of(net, model) for block in chain]
    inside = sum(p.numel() for block in blocks for p in block.parameters())
    assert len(blocks) >= 2
    assert inside > 0.7 * sum(p.numel() for p in model.parameters())


def test_the_number_of_segments_is_their_length() -> None:
    net = net_named("resnet50")
    changed = CHECKPOINTS[1].change(net)
    (chain,) = chains_of(changed, changed.make())
    assert [len(segment.blocks) for segment in chain] == [4, 4, 4, 4]  # of 16 blocks


def test_a_judged_peak_is_that_of_a_recording(tmp_path: Path) -> None:
    net = net_named("unet")
    peak = record(net, 2, 0, tmp_path / "run.rtrace").unbudgeted_peak_bytes()
    assert judged_peak_bytes(net, 2, 0) == pytest.approx(peak, rel=1e-3)
    fewer = judged_peak_bytes(CHECKPOINTS[0].change(net), 2, 0)
    kept = judged_peak_bytes(CHECKPOINTS[2].change(net), 2, 0)
    assert fewer < kept < peak


@pytest.mark.parametrize("name", ["save-on-cpu", "selective"])
def test_other_alternatives_change_no_bit(name: str) -> None:
    assert bits_that_differ(net_named("bert"), *alternatives_named([name])) == []


def test_rows_are_resumed(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    plan = runner.Plan(["bilstm"], ["planned"], [], steps=2, rounds=1)
    results = runner.open_results(out, plan)
    assert list(run_alternatives(CHECKPOINTS[:1], plan, results, out)) == [
        "bilstm: peak",
        "bilstm, checkpoint-block",
        "bilstm, planned in the memory of checkpoint-block",
    ]
    first = json.loads(out.read_text())
    (row,) = first["alternatives"]
    assert row["status"] == "ok" and row["differs"] == []
    assert row["peak_bytes"] == row["peak_fraction"] * first["judged_peaks"]["bilstm"]
    assert row["peak_fraction"] < 0.9 and row["first_seconds"] > 0 and len(row["time_ratios"]) == 1
    assert row["ours"]["planned"]["bits_equal"]
    assert row["ours"]["planned"]["stats"]["peak_bytes"] <= row["peak_bytes"]

    larger = replace(plan, policies=["lru"])
    results = runner.open_results(out, larger)
    assert list(run_alternatives(CHECKPOINTS[:1], larger, results, out)) == [
        "bilstm, lru in the memory of checkpoint-block"  # planned is complete
    ]
    ours = json.loads(out.read_text())["alternatives"][0]["ours"]
    assert ours["planned"] == row["ours"]["planned"] and ours["lru"]["status"] == "ok"


def test_a_failing_alternative_is_a_row_with_its_reason() -> None:
    def raises(net: Net) -> Net:
        def make() -> nn.Module:
            raise RuntimeError("this net does not compile\n  here")

        return replace(net, make=make)

    plan = runner.Plan(["bilstm"], ["dtr"], [], steps=2, rounds=1)
    results = runner.open_results(None, plan)
    ways = [Alternative("fails", raises), Alternative("absent", raises, needs="no_such_module")]
    list(run_alternatives(ways, plan, results, None))
    assert [(row["status"], row["reason"]) for row in results.alternatives] == [
        ("failed", "RuntimeError: this net does not compile"),
        ("not installed", "pip install no-such-module"),
    ]
    assert torch.is_grad_enabled()


def test_names() -> None:
    names = [alternative.name for alternative in ALTERNATIVES]
    assert alternatives_named(["none"]) == []
    every = [alternative.name for alternative in alternatives_named(["all"])]
    assert every == [name for name in names if not name.startswith("inductor")]
    assert alternatives_named(["inductor-0.5"])[0].name == "inductor-0.5"


def test_the_command(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    shown = cli(
        "bench", "--nets", "bilstm", "--policies", "dtr", "--budgets", "100", "--steps", "2",
        "--rounds", "1", "--alternatives", "save-on-cpu", "compile-0.5", "--out", out,
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    assert "bilstm: eager's peak" in shown.stdout and "first step" in shown.stdout
    assert "save-on-cpu: moves saved tensors to the CPU, where they already are" in shown.stdout
    saved, compiled = json.loads(out.read_text())["alternatives"]
    assert saved["peak_fraction"] == pytest.approx(1, rel=1e-3) and saved["differs"] == []
    assert compiled["status"] == "ok", compiled
    assert saved["ours"]["dtr"]["status"] == "ok"


def test_a_bad_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    said = refused(capsys, "bench", "--alternatives", "offload", "--out", out)
    assert "is not one of all, none, checkpoint-block" in said
    assert not out.exists()
