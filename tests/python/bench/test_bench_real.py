"""`recoup bench --size real` on its tiny net: processes, resumed results, tables. No times."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from command import cli
from recoup.bench.nets.real import REAL_NETS, real_net_named
from recoup.bench.real import picture, runner
from recoup.bench.real.results import Plan, Results, open_results
from recoup.bench.real.summary import remarks, summaries
from recoup.bench.real.table import COLUMNS, cells
from recoup.bench.real.ways import CHECKPOINT, DEFAULT, WAYS, Way, environment_of, is_installed
from recoup.bench.rounds import BitsDifferError

ARGUMENTS = ("bench", "--size", "real", "--nets", "tiny", "--budgets", "100,50,5", "--steps", "2")
ABSENT = Way("absent", library="libabsent.so.9", package="libabsent9")


def read(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def shown_cases(table: str) -> list[str]:
    """The first cells of a table's lines."""
    return [line.split("  ")[0] for line in table.splitlines()]


def test_the_command(tmp_path: Path) -> None:
    out, plot, page = tmp_path / "out.json", tmp_path / "out.svg", tmp_path / "out.md"
    shown = cli(*ARGUMENTS, "--rounds", "1", "--out", out)
    assert shown.returncode == 0, shown.stderr
    found = read(out)
    rows = {(row["way"], row["fraction"]): row for row in found["rows"]}
    assert rows.keys() == {
        *((way.name, None) for way in WAYS if not way.budget),
        *(("recoup", fraction) for fraction in (1.0, 0.5, 0.05)),
    }
    peaks = found["peaks"]["tiny"]
    assert peaks["checkpoint"] < peaks["plain"]
    for (way, fraction), row in rows.items():
        if row["status"] != "ok":
            assert not row["runs"] and (fraction == 0.05 or row["status"] == "not installed")
            continue
        (run,) = row["runs"]
        assert len(run["seconds"]) == 2 and run["page_faults"] > 0
        assert 0 < run["rss_before_bytes"] < run["peak_rss_bytes"]
        assert row["differs"] == (["buffers"] if way == "checkpoint" else [])
        if fraction is not None:
            assert row["budget_bytes"] == int(fraction * peaks["plain"])
            assert run["charged_bytes"] <= row["budget_bytes"]
    assert rows["recoup", 0.5]["runs"][0]["replays"] > rows["recoup", 1.0]["runs"][0]["replays"]
    assert rows["recoup", 0.05]["status"] == "out of budget"
    assert rows["recoup", 0.05]["least_bytes"] > rows["recoup", 0.05]["budget_bytes"]
    assert all(column in shown.stdout for column in COLUMNS)
    assert {"plain", "recoup in 100 %", "recoup in 50 %"} < {*shown_cases(shown.stdout)}
    assert "recoup in 5 %: out of budget; below" in shown.stdout
    assert "In a budget of 100 %, recoup takes" in shown.stdout
    assert "The difference is due to its pool" in shown.stdout

    done = out.read_bytes()
    again = cli(*ARGUMENTS, "--rounds", "1", "--out", out, "--plot", plot, "--page", page)
    assert (again.returncode, again.stderr, again.stdout) == (0, "", shown.stdout)
    assert out.read_bytes() == done
    assert "<!-- tiny " in plot.read_text() and "<!-- checkpoint " in plot.read_text()
    assert "| recoup in 50 % | " in page.read_text()

    other = json.loads(done)
    other["digests"]["tiny"]["gradients"] = "of another training"
    out.write_text(json.dumps(other))
    stopped = cli(*ARGUMENTS, "--rounds", "2", "--out", out)
    assert stopped.returncode == 2
    assert "tiny, recoup in 50 %: bits differ from plain PyTorch: gradients" in stopped.stderr
    assert read(out)["rows"] == found["rows"]


def test_a_further_round_is_run_later(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    plan = Plan(["tiny"], [0.6], steps=1, rounds=1, ways=(DEFAULT, ABSENT))
    said = list(runner.run_all(plan, open_results(out, plan), out))
    assert [line.partition(":")[0] for line in said] == [
        "round 1, tiny, plain",
        "round 1, tiny, plain",  # measures the peak
        "round 1, tiny, recoup in 60 %",
    ]
    first = read(out)["rows"]
    assert [len(row["runs"]) for row in first] == [1, 0, 1]

    more = Plan(["tiny"], [0.6], steps=1, rounds=2, ways=(DEFAULT, ABSENT))
    results = open_results(out, more)
    said = list(runner.run_all(more, results, out))
    assert [line.partition(":")[0] for line in said] == [
        "round 2, tiny, recoup in 60 %",
        "round 2, tiny, plain",
    ]
    assert [row["runs"][:1] for row in results.rows] == [row["runs"] for row in first]
    assert not list(runner.run_all(more, results, out))

    with pytest.raises(ValueError, match="measured with steps = 1, not 2"):
        open_results(out, Plan(["tiny"], steps=2))
    out.write_text('{"benchmark": "bench", "settings": {}}')
    with pytest.raises(ValueError, match="not written by `recoup bench --size real`"):
        open_results(out, plan)


def test_cases_with_a_spill_tier(tmp_path: Path) -> None:
    ways = (DEFAULT,)
    plan = Plan(["tiny"], [0.5, 0.4], 2, 1, ways=ways, spill="1GiB", spill_dir=str(tmp_path))
    results = open_results(None, plan)
    list(runner.run_all(plan, results, None))
    (summary,) = summaries(plan, results)
    assert [line.label for line in summary.lines] == [
        "plain",
        *("recoup in 50 %", "recoup in 40 %"),
        *("recoup+tier in 50 %", "recoup+tier in 40 %"),
    ]
    *_, tiered = summary.lines
    shown = dict(zip(COLUMNS, cells(summary, tiered), strict=True))
    assert tiered.runs, tiered.row
    (run,) = tiered.runs
    assert run["charged_bytes"] <= 0.4 * summary.peak_bytes and run["written_bytes"] > 0
    assert shown["written GB"] == f"{run['written_bytes'] / 2e9:.2f}" and shown["bits"] == "equal"
    picture.draw(plan, results, tmp_path / "out.svg")
    assert "<!-- recoup+tier " in (tmp_path / "out.svg").read_text()
    assert 0.2 in {fraction for _, fraction in Plan(["gpt2"], spill="1GiB").cases("gpt2")}
    assert 0.2 not in {fraction for _, fraction in Plan(["gpt2"]).cases("gpt2")}


def test_a_missing_allocator_is_reported() -> None:
    assert not is_installed(ABSENT) and is_installed(DEFAULT)
    plan = Plan(["tiny"], [], steps=1, rounds=1, ways=(DEFAULT, ABSENT))
    results = open_results(None, plan)
    list(runner.run_all(plan, results, None))
    (summary,) = summaries(plan, results)
    plain, absent = summary.lines
    assert summary.fastest == plain
    assert cells(summary, absent)[:2] == ["absent", "not installed"]
    assert "absent: not installed: apt install libabsent9." in remarks(summary)

    results.row("tiny", "absent", None)["status"] = "ok"  # as a file of another machine may claim
    list(runner.run_all(plan, results, None))
    assert results.row("tiny", "absent", None)["status"] == "not installed"


def test_a_slow_process_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "FEASIBLE_RATIO", 0.01)
    plan = Plan(["tiny"], [0.5], steps=1, rounds=2, ways=(DEFAULT,))
    results = open_results(None, plan)
    said = list(runner.run_all(plan, results, None))
    assert [line.partition(";")[0] for line in said].count(
        "round 1, tiny, recoup in 50 %: too slow"
    ) == 1
    assert not any("round 2, tiny, recoup" in line for line in said)


def test_a_process_that_fails_stops_the_bench() -> None:
    broken = Way("broken", {"PYTHONHASHSEED": "no number"})
    plan = Plan(["tiny"], [], steps=1, rounds=1, ways=(broken,))
    with pytest.raises(RuntimeError, match="tiny, broken: failed: Python"):
        list(runner.run_all(plan, open_results(None, plan), None))


def test_the_environment_chooses_the_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "libother.so")
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    chosen = {way.name: environment_of(way) for way in WAYS}
    for name in ("plain", "checkpoint", "recoup"):
        assert not {"LD_PRELOAD", "MALLOC_ARENA_MAX"} & chosen[name].keys()
        assert chosen[name]["OMP_NUM_THREADS"] == "2"
    assert chosen["plain-nommap"]["MALLOC_MMAP_MAX_"] == "0"
    assert chosen["jemalloc"]["LD_PRELOAD"] == "libjemalloc.so.2"


def row_of(way: str, fraction: float | None, *steps: list[float], **run: Any) -> dict[str, Any]:
    runs = [{"seconds": seconds, "page_faults": 10, **run} for seconds in steps]
    case = {"net": "tiny", "way": way, "fraction": fraction, "status": "ok", "note": ""}
    return case | {"differs": [], "runs": runs}


def test_times_are_relative_to_the_fastest_plain_allocator() -> None:
    plan = Plan(["tiny"], [1.0, 0.5])
    rows = [
        row_of("plain", None, [9.0, 4.0, 5.0], [9.0, 2.0, 8.0], [9.0, 7.0, 6.0]),
        row_of("tcmalloc", None, [9.0, 2.5, 2.0]),
        row_of("checkpoint", None, [1.0, 1.0, 1.0]),
        row_of("recoup", 1.0, [1.0, 3.0, 3.0], charged_bytes=90),
        row_of("recoup", 0.5, [1.0, 6.0, 6.0], charged_bytes=50),
    ]
    rows[-1]["status"] = "too slow"  # in a later round
    results = Results({"steps": 3}, {"tiny": {"plain": 100, "checkpoint": 60}}, {}, rows)
    (summary,) = summaries(plan, results)
    lines = {line.label: line for line in summary.lines}
    assert lines["plain"].seconds() == 4.0  # the median of 4, 2 and 6, the fastest step of each run
    assert summary.fastest == lines["tcmalloc"]  # a checkpointed run is no plain run
    assert summary.pool == lines["recoup in 100 %"]
    assert lines["recoup in 100 %"].over(summary.fastest) == 1.5
    assert [lines[name].peak_bytes for name in ("plain", "tcmalloc", "checkpoint")] == [
        100, None, 60,
    ]  # fmt: skip
    assert lines["recoup in 50 %"].seconds() is None
    assert lines["jemalloc"].status == "not run yet"
    assert "takes 0.75x the time of plain PyTorch" in remarks(summary)[0]
    assert "allocator, tcmalloc, it takes 1.50x" in remarks(summary)[0]


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("gpt2", 124_439_808), ("resnet50", 25_557_032), ("bert", 109_514_298), ("vit", 86_567_656)],
)
def test_nets_have_the_published_size(name: str, parameters: int) -> None:
    with torch.device("meta"):
        model = real_net_named(name).net.make()
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


@pytest.mark.parametrize("name", [real.net.name for real in REAL_NETS])
def test_every_net_names_its_blocks(name: str) -> None:
    net = real_net_named(name).net
    with torch.device("meta"):
        model = net.make()
    for chain in net.chains:
        assert len(list(model.get_submodule(chain).children())) >= 2
    assert CHECKPOINT.checkpoints


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--nets", "vgg"], "--nets 'vgg' is not one of gpt2"),
        (["--policies", "dtr"], "--policies needs --size small; got --size real"),
        (["--alternatives", "all"], "--alternatives needs --size small"),
        (["--plot-of", "time"], "--plot-of needs --size small"),
        (["--timeline", "a.png"], "--timeline needs --size small"),
        (["--device", "cpu"], "--device needs --size small"),
        (["--rounds", "0"], "--rounds must be 1 or more"),
        (["--page", "nowhere/page.md"], "there is no directory"),
    ],
)
def test_bad_arguments(arguments: list[str], words: str, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    result = cli("bench", "--size", "real", *arguments, "--out", out)
    assert result.returncode == 2
    assert words in result.stderr and result.stderr.count("\n") == 1, result.stderr
    assert not out.exists()


def test_a_page_needs_the_real_size(tmp_path: Path) -> None:
    result = cli("bench", "--page", tmp_path / "page.md")
    assert result.returncode == 2
    assert "--page needs --size real; got --size small" in result.stderr


def test_bits_are_compared_with_the_first_plain_run() -> None:
    plan = Plan(["tiny"], [], steps=1, rounds=1, ways=(DEFAULT,))
    results = open_results(None, plan)
    assert results.differ("tiny", {"losses": "a", "buffers": "b"}) == []
    assert results.differ("tiny", {"losses": "a", "buffers": "c"}) == ["buffers"]
    with pytest.raises(BitsDifferError, match=r"tiny, plain: .*losses, buffers"):
        list(runner.run_all(plan, results, None))
