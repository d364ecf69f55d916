"""Timelines as Perfetto shows them, by queries to its own trace processor.

All tests but the last ones are skipped if the trace processor is not installed.
"""

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import recoup
from command import cli, cli_here
from recoup._reporting.moments import Moment, MomentKind, chrome_json, chrome_trace
from recoup.bench.flat_options import split
from trace_processor import TraceProcessor, trace_processor

SLICES = """
    SELECT thread.name AS line, slice.name, slice.ts, slice.dur, depth,
        extract_arg(arg_set_id, 'args.cost_ns') AS cost,
        extract_arg(arg_set_id, 'args.module') AS module,
        extract_arg(arg_set_id, 'args.bytes') AS bytes
    FROM slice JOIN thread_track ON track_id = thread_track.id JOIN thread USING (utid)
    ORDER BY slice.ts, slice.id"""
STEPS = """
    SELECT slice.name, slice.ts FROM slice JOIN track ON track_id = track.id
    WHERE track.type = 'legacy_chrome_global_instants' ORDER BY slice.ts"""
MEMORY = """
    SELECT ts, track.name, value FROM counter JOIN track ON track_id = track.id ORDER BY ts"""
LOST = """
    SELECT name, value FROM stats WHERE severity IN ('error', 'data_loss') AND value != 0"""


@pytest.fixture(scope="module")
def perfetto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TraceProcessor]:
    with trace_processor(tmp_path_factory.mktemp("perfetto")) as opened:
        yield opened


def load(perfetto: TraceProcessor, folder: Path, trace: str) -> None:
    file = folder / "timeline.json"
    file.write_text(trace, encoding="utf-8")
    perfetto.load(file)


def lines(perfetto: TraceProcessor) -> dict[str, list[tuple[Any, ...]]]:
    """By line of the timeline, its slices: name, start, duration, cost, module and bytes.

    Checks that no event was lost, and that no slice is nested in another.
    """
    assert perfetto.rows(LOST) == []
    found: dict[str, list[tuple[Any, ...]]] = {}
    for line, name, start, duration, depth, *said in perfetto.rows(SLICES):
        assert depth == 0, (line, name, start)
        found.setdefault(line, []).append((name, start, duration, *said))
    return found


def train(budget: str | int, **options: Any) -> recoup.Run:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(6)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.randn(512, 64)
    with recoup.budget(budget, profile="timeline", **split(options)) as run:
        for _ in range(3):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
    return run


# By measured time, and by a cost that is independent of time.
@pytest.mark.parametrize("cost_model", ["measured", "bytes"])
def test_a_run_in_half_of_its_memory(
    perfetto: TraceProcessor, tmp_path: Path, cost_model: str
) -> None:
    run = train(train("64MiB").stats().peak_bytes // 2, cost_model=cost_model)
    stats, moments = run.stats(), run.timeline()
    load(perfetto, tmp_path, chrome_json(moments, stats.budget_bytes))
    drawn = lines(perfetto)
    assert set(drawn) == {"program", "replays", "making room"}

    program, replays, room = drawn["program"], drawn["replays"], drawn["making room"]
    assert len(program) == stats.op_count
    assert len(replays) == stats.replays > 0
    assert sum(cost for *_, cost, _, _ in program) == stats.op_ns
    assert sum(cost for *_, cost, _, _ in replays) == stats.replay_cost_ns
    assert all(0 <= duration <= cost for _, _, duration, cost, _, _ in program + replays)
    for kind, line in (("op", program), ("replay", replays)):
        reported = [(each.name, each.module) for each in moments if each.kind == kind]
        assert [(name, module or "") for name, *_, module, _ in line] == reported
    assert {module for *_, module, _ in program} > {"0.0", "5.1"}

    evictions = [size for name, *_, size in room if name.startswith("evict aten::")]
    assert len(evictions) == stats.evictions > 0
    assert sum(evictions) == stats.evicted_bytes
    assert [name for name, _ in perfetto.rows(STEPS)] == ["step 0", "step 1", "step 2"]


def test_memory_is_a_counter_below_the_budget(perfetto: TraceProcessor, tmp_path: Path) -> None:
    run = train(train("64MiB").stats().peak_bytes // 2)
    stats, moments = run.stats(), run.timeline()
    load(perfetto, tmp_path, chrome_json(moments, stats.budget_bytes))
    values = perfetto.rows(MEMORY)
    used = [value for _, name, value in values if name == "memory bytes"]
    free = [value for _, name, value in values if name == "memory free"]
    assert used == [moment.charged_bytes for moment in moments]
    assert stats.budget_bytes // 2 < max(used) <= stats.peak_bytes <= stats.budget_bytes
    assert {sum(both) for both in zip(used, free, strict=True)} == {stats.budget_bytes}
    assert perfetto.rows("SELECT name FROM process WHERE pid = 1") == [("recoup",)]


def test_the_duration_of_a_simulated_op_is_its_cost(
    perfetto: TraceProcessor, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, file = tmp_path / "run.rtrace", tmp_path / "timeline.json"
    train("64MiB", trace=trace)
    whole = recoup.Trace.read(trace)
    budget = whole.unbudgeted_peak_bytes() // 2
    options = ["--policy", "lru", "--budgets", f"{budget}B", "--timeline", file]
    assert cli_here(capsys, "simulate", trace, *options).returncode == 0
    simulated = whole.simulate(budget, recoup.SimulationOptions(policy="lru"))
    perfetto.load(file)
    drawn = lines(perfetto)
    program, replays = drawn["program"], drawn["replays"]
    assert (len(program), len(replays)) == (simulated.ops, simulated.stats.replays)
    assert len(drawn["making room"]) == simulated.stats.evictions > 0
    assert all(duration == cost for _, _, duration, cost, _, _ in program + replays)
    assert sum(duration for _, _, duration, *_ in program) == simulated.plain_cost_ns
    assert sum(duration for _, _, duration, *_ in replays) == simulated.replay_cost_ns > 0
    (_, start, duration, *_) = program[-1]
    end = max(start + duration, sum(replays[-1][1:3]))
    assert end == simulated.plain_cost_ns + simulated.replay_cost_ns
    assert len(perfetto.rows(STEPS)) == 3


def test_recoup_run_writes_a_timeline(perfetto: TraceProcessor, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import torch\n"
        "base = torch.ones(2**18)\n"
        "kept = [base.mul(i) for i in range(12)]\n"
        "print(sum(t[0].item() for t in kept))\n"
    )
    files = ["--report", "report.json", "--timeline", "timeline.json"]
    result = cli("run", "--budget", "8MiB", *files, "script.py", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (0, "66.0\n"), result.stderr
    work = json.loads((tmp_path / "report.json").read_text())["stats"]["work"]
    perfetto.load(tmp_path / "timeline.json")
    drawn = lines(perfetto)
    assert len(drawn["program"]) == work["op_count"]
    assert len(drawn["replays"]) == work["replays"] > 0
    evictions = [name for name, *_ in drawn["making room"] if name.startswith("evict ")]
    assert len(evictions) == work["evictions"]


KINDS: tuple[MomentKind, ...] = ("op", "replay", "evict", "move", "spill", "fetch", "step")


def made_up(seed: int, count: int = 2000) -> list[Moment]:
    """Moments at equal times, of no cost, or of more cost than has passed, as in live runs."""
    chance = random.Random(seed)
    now, moments = 0, []
    for number in range(count):
        kind = chance.choice(KINDS)
        now += chance.choice([0, 0, 1, 999, chance.randrange(10**6)])
        cost = chance.choice([0, 1, 500, chance.randrange(2 * 10**6)])
        cost *= kind in ("op", "replay")
        moments.append(Moment(kind, f"a{number}", max(0, now - cost), cost, number))
    return moments


@pytest.mark.parametrize("seed", range(3))
def test_overlapping_moments_are_kept(perfetto: TraceProcessor, tmp_path: Path, seed: int) -> None:
    moments = made_up(seed)
    load(perfetto, tmp_path, chrome_json(moments, len(moments)))
    drawn = lines(perfetto)
    kinds = Counter(moment.kind for moment in moments)
    assert {line: len(found) for line, found in drawn.items()} == {
        "program": kinds["op"],
        "replays": kinds["replay"],
        "making room": kinds["evict"] + kinds["move"],
        "spill tier": kinds["spill"] + kinds["fetch"],
    }
    for line, kind in (("program", "op"), ("replays", "replay")):
        reported = [(each.name, each.cost_ns) for each in moments if each.kind == kind]
        assert [(name, cost) for name, _, _, cost, *_ in drawn[line]] == reported
        assert all(duration <= cost for _, _, duration, cost, *_ in drawn[line])
    steps = [each.name for each in moments if each.kind == "step"]
    assert [name for name, _ in perfetto.rows(STEPS)] == steps


def test_perfetto_reports_dropped_events(perfetto: TraceProcessor, tmp_path: Path) -> None:
    """Otherwise the tests above would prove nothing."""
    crossing = [
        {"ph": "X", "pid": 1, "tid": 1, "name": "a", "ts": 1.5, "dur": 2.25},
        {"ph": "X", "pid": 1, "tid": 1, "name": "b", "ts": 3, "dur": 2.25},
    ]
    load(perfetto, tmp_path, json.dumps({"traceEvents": crossing}))
    assert perfetto.rows(LOST) == [("slice_drop_overlapping_complete_event", 1)]
    assert perfetto.rows("SELECT name, ts, dur FROM slice") == [("a", 1500, 2250)]


READ = ['"', 'a"', "</script>", "{}", "größe", "\N{SNOWMAN}", "\N{FIRE}", "\x7f", "x" * 9999]
UNREAD = {"a\\": "a?", "\\u0041": "?u0041", "a\nb": "a?b", "\0": "?", "\ud800": "?"}


@pytest.mark.parametrize("kind", KINDS)
def test_names_are_shown_unchanged(
    perfetto: TraceProcessor, tmp_path: Path, kind: MomentKind
) -> None:
    names = [*READ, *UNREAD]
    shown = [*READ, *(each.replace("?", "\N{REPLACEMENT CHARACTER}") for each in UNREAD.values())]
    cost = int(kind in ("op", "replay"))
    moments = [Moment(kind, name, i, cost, 0, module=name) for i, name in enumerate(names)]
    load(perfetto, tmp_path, chrome_json(moments, 1))
    if kind == "step":
        assert perfetto.rows(LOST) == []
        assert [name for name, _ in perfetto.rows(STEPS)] == shown
        return
    (drawn,) = lines(perfetto).values()
    before = "" if cost else f"{kind} "
    assert [name for name, *_ in drawn] == [(before + name).strip() for name in shown]
    assert [module or "" for *_, module, _ in drawn] == shown


def test_days_are_exact_to_a_nanosecond(perfetto: TraceProcessor, tmp_path: Path) -> None:
    month = 30 * 24 * 3600 * 10**9
    moments = [Moment("op", "a", month + 7 * number, 7, 0) for number in range(1000)]
    load(perfetto, tmp_path, chrome_json(moments, 1))
    drawn = lines(perfetto)["program"]
    assert [row[1:3] for row in drawn] == [(each.start_ns, 7) for each in moments]


def test_an_empty_run_opens(perfetto: TraceProcessor, tmp_path: Path) -> None:
    load(perfetto, tmp_path, chrome_json([], 1))
    assert lines(perfetto) == {}
    assert perfetto.rows("SELECT name FROM thread WHERE tid > 0") == [("program",), ("replays",)]


# ---- without Perfetto ----


def spans(moments: Sequence[Moment], kind: str) -> list[tuple[float, float]]:
    """Start and end of all ops or replays as drawn, in nanoseconds."""
    tid = {"op": 1, "replay": 2}[kind]
    return [
        (round(event["ts"] * 1e3), round((event["ts"] + event["dur"]) * 1e3))
        for event in chrome_trace(moments, 1)["traceEvents"]
        if event["ph"] == "X" and event["tid"] == tid
    ]


def test_a_moment_that_costs_more_than_the_time_passed_is_shortened() -> None:
    moments = [
        Moment("op", "a", 0, 900, 0),  # 100 of them had passed, see the next one
        Moment("replay", "b", 50, 50, 0),
        Moment("op", "c", 150, 50, 0),  # there was time before it
        Moment("op", "d", 120, 130, 0),
        Moment("op", "e", 250, 0, 0),
        Moment("op", "f", 250, 10, 0),
    ]
    assert spans(moments, "op") == [(0, 100), (150, 200), (200, 250), (250, 250), (251, 260)]
    assert spans(moments, "replay") == [(100, 100)]


@pytest.mark.parametrize("seed", range(20))
def test_ops_and_replays_are_drawn_one_at_a_time(seed: int) -> None:
    moments = made_up(seed, 500)
    together = sorted(spans(moments, "op") + spans(moments, "replay"))
    assert all(first[1] <= second[0] for first, second in pairwise(together))
