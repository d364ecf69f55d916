"""Small runs of `recoup bench`."""

import json
from pathlib import Path

import pytest
import torch

import recoup
from command import cli, refused
from recoup.bench import rounds, runner, simulated
from recoup.bench.nets import NETS, Net, net_named
from recoup.bench.trial import Trial, record, run_in, run_plainly
from recoup.commands.bench.arguments import parse_fractions
from recoup.offline.timeline_picture import kind_of, last_step


@pytest.mark.parametrize("net", NETS, ids=lambda net: net.name)
def test_a_budget_changes_no_bit(net: Net) -> None:
    plain = run_plainly(net, 2, seed=0)
    whole = run_in(net, 2, 0, 1 << 32)
    assert whole.stats is not None and whole.digest == plain.digest
    budget = int(0.8 * whole.stats.peak_bytes)
    tight = run_in(net, 2, 0, budget)
    assert tight.stats is not None and tight.digest == plain.digest
    assert tight.stats.evictions > 0
    assert tight.stats.peak_bytes <= budget
    assert 0 < tight.stats.fragmentation < 1


def test_another_seed_gives_other_results() -> None:
    net = net_named("bilstm")
    assert run_plainly(net, 1, seed=0).digest != run_plainly(net, 1, seed=1).digest


def test_the_random_path_changes_in_each_step() -> None:
    model = net_named("spos").make()
    images = torch.ones(2, 3, 8, 8)
    assert not torch.equal(model(images), model(images))


def test_results_are_resumed(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    small = runner.Plan(["unet"], ["dtr"], [1.0], steps=2, rounds=1)
    results = runner.open_results(out, small)
    assert list(runner.run_all(small, results, out)) == [
        "unet: recording", "unet, dtr: simulating", "unet: plain", "unet, dtr, 100%",
    ]  # fmt: skip
    assert list(runner.run_all(small, results, out)) == []
    first = json.loads(out.read_text())["rows"]

    larger = runner.Plan(["unet"], ["dtr", "lru"], [1.0, 0.01], steps=2, rounds=1)
    results = runner.open_results(out, larger)
    list(runner.run_all(larger, results, out))
    found = json.loads(out.read_text())
    assert found["rows"][0] == first[0]  # the case did not run again
    assert [(row["policy"], row["fraction"], row["status"]) for row in found["rows"]] == [
        ("dtr", 1.0, "ok"), ("dtr", 0.01, "out of budget"), ("lru", 1.0, "ok"),
        ("lru", 0.01, "out of budget"),
    ]  # fmt: skip
    row = found["rows"][0]
    assert row["bits_equal"] and row["time_ratio"] > 0 and row["compute_overhead"] >= 1
    assert len(row["time_ratios"]) == 1
    least = {row["policy"]: row["budget_bytes"] for row in found["least"]}
    assert 0 < least["dtr"] < found["peaks"]["unet"]

    with pytest.raises(ValueError, match="measured with steps = 2, not 3"):
        runner.open_results(out, runner.Plan(["unet"], ["dtr"], [1.0], steps=3))
    out.write_text("{}")
    with pytest.raises(ValueError, match="not written by `recoup bench`"):
        runner.open_results(out, small)


def test_a_lost_round_runs_again(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    plan = runner.Plan(["bilstm"], ["dtr", "lru"], [1.0], steps=1, rounds=2)
    running = runner.run_all(plan, runner.open_results(out, plan), out)
    while next(running) != "bilstm, lru, 100%":
        pass
    next(running)  # the second round
    running.close()
    found = runner.open_results(out, plan)
    assert [len(row["time_ratios"]) for row in found.rows] == [1, 1]
    assert found.rounds_done(plan) == 2 and found.lacks(plan, "bilstm")
    before = [row["time_ratios"][0] for row in found.rows]
    list(runner.run_all(plan, found, out))
    assert [row["time_ratios"][0] for row in found.rows] == before
    assert [row["status"] for row in found.rows] == ["ok", "ok"]
    assert found.rounds_done(plan) == 4 and not found.lacks(plan, "bilstm")


def test_a_case_is_compared_with_the_plain_runs_before_and_after_it() -> None:
    before, after = (
        rounds.Timed(at, Trial(seconds, "", None)) for at, seconds in ((10.0, 2.0), (30.0, 4.0))
    )
    assert rounds.plain_seconds(before, after, 10.0) == 2.0
    assert rounds.plain_seconds(before, after, 15.0) == 2.5
    assert rounds.plain_seconds(before, after, 30.0) == 4.0


def test_the_cost_of_the_layout(tmp_path: Path) -> None:
    trace = record(net_named("unet"), 2, 0, tmp_path / "run.rtrace")
    peak = trace.unbudgeted_peak_bytes()
    row = simulated.layout_row(trace, "dtr", peak // 2)
    here, free = (
        trace.simulate(peak // 2, recoup.SimulationOptions(policy="dtr", layout=layout))
        for layout in (True, False)
    )
    assert free.stats.misfits == 0
    assert here.stats.misfits > 0 and 0 < row["scatter"] == here.stats.scatter < 1
    beyond = here.stats.evicted_bytes + here.stats.moved_bytes - free.stats.evicted_bytes
    assert row["cost"] == beyond / here.stats.made_room_bytes
    assert row["time_ratio"] == here.time_ratio / free.time_ratio
    assert row["fragmentation_without"] == free.stats.fragmentation

    roomy = simulated.layout_row(trace, "dtr", 4 * peak)
    assert (roomy["cost"], roomy["scatter"], roomy["time_ratio"]) == (None, 0.0, 1.0)
    assert simulated.layout_row(trace, "dtr", 1000)["cost"] is None


def test_the_least_budget_runs_and_a_smaller_one_does_not(tmp_path: Path) -> None:
    trace = record(net_named("unet"), 2, 0, tmp_path / "run.rtrace")
    peak = trace.unbudgeted_peak_bytes()
    least = simulated.least_budget(trace, "dtr", peak)
    assert least is not None
    assert trace.simulate(least, recoup.SimulationOptions(policy="dtr")).status == "ok"
    assert (
        trace.simulate(least - peak // 100 - 1, recoup.SimulationOptions(policy="dtr")).status
        != "ok"
    )
    whole = simulated.whole_budget(trace, peak)
    assert whole is not None and peak <= whole < 1.2 * peak
    assert trace.simulate(whole).stats.evictions == 0


def test_the_command(tmp_path: Path) -> None:
    out, plot = tmp_path / "out.json", tmp_path / "out.png"
    shown = cli(
        "bench", "--nets", "unet", "--policies", "dtr", "sqrt-n", "--budgets", "100,80", "--steps",
        "2", "--rounds", "1", "--out", out, "--plot", plot, "--plot-of", "compute",
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    assert "unet: unbudgeted peak" in shown.stdout and "sqrt-n" in shown.stdout
    assert len(json.loads(out.read_text())["rows"]) == 4
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--nets", "vgg"], "--nets 'vgg' is not one of resnet50"),
        (["--policies", "oracle"], "--policies 'oracle' is not one of planned"),
        (["--budgets", "half"], "budgets must be percentages"),
        (["--budgets", "0"], "budgets must be percentages above 0"),
        (["--steps", "0"], "--steps must be 1 or more"),
        (["--plot", "picture.gif"], "--plot must end in .png or .svg or .pdf"),
        (["--plot", "nowhere/picture.png"], "there is no directory"),
        (["--timeline", "picture.png"], "--timeline draws at most 12 cases"),
    ],
)
def test_bad_arguments(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    assert words in refused(capsys, "bench", *arguments, "--out", out)
    assert not out.exists()


def test_the_timeline(tmp_path: Path) -> None:
    picture = tmp_path / "timeline.svg"
    shown = cli(
        "bench", "--nets", "unet", "--policies", "dtr", "--budgets", "60", "--steps", "2",
        "--timeline", picture,
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    drawn = picture.read_text()
    for words in ("unet, dtr, 60% of", "convolution", "pale: replays", "evictions"):
        assert f"<!-- {words}" in drawn  # a comment that matplotlib writes for each text
    assert "<!-- attention" not in drawn


def test_kinds_of_ops() -> None:
    assert kind_of("aten::convolution_backward") == "convolution"
    assert kind_of("aten::_scaled_dot_product_flash_attention_for_cpu") == "attention"
    assert kind_of("aten::addmm") == "matrix product"
    assert kind_of("aten::_log_softmax") == "loss, softmax"
    assert kind_of("aten::threshold_backward") == "activation"
    assert kind_of("aten::add.Tensor") == "other"


def test_the_last_step(tmp_path: Path) -> None:
    trace = record(net_named("unet"), 3, 0, tmp_path / "run.rtrace")
    moments = trace.timeline(trace.unbudgeted_peak_bytes())
    marks = [index for index, moment in enumerate(moments) if moment.kind == "step"]
    assert last_step(moments) == moments[marks[1] + 1 : marks[2] + 1]
    assert last_step(moments[: marks[0] + 1]) == moments[: marks[0] + 1]
    assert last_step(moments[: marks[0]]) == moments[: marks[0]]


def test_fractions() -> None:
    assert parse_fractions("100..80:10") == [1.0, 0.9, 0.8]
    assert parse_fractions("80, 12.5%") == [0.8, 0.125]


def test_fragmentation_is_a_mean() -> None:
    stats = recoup.Stats(**dict.fromkeys(recoup.Stats.__dataclass_fields__, 0))
    assert stats.fragmentation == 0.0
