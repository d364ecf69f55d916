"""The DTR authors' simulator: logs with results worked out by hand, published figures, the command.

Its core is tested in tests/core/offline/dtr_test.cpp.
"""

import json
from pathlib import Path

import pytest

from command import refused
from dtr_logs import (
    GOLDEN,
    GOLDEN_ABLATION,
    LOGS,
    SHARED,
    TOLERANCE,
    Row,
    annotate,
    call,
    constant,
    copy,
    copy_from,
    memory,
    mutate,
    read_golden,
    release,
    simulate_golden,
    write_log,
)
from recoup.commands.cli import main
from recoup.offline.dtr import DtrProgram, dtr_policies
from recoup.offline.traces import Simulation


def program_of(folder: Path, rows: list[Row]) -> DtrProgram:
    return DtrProgram.read(write_log(folder / "small.log", rows))


def ended(result: Simulation) -> tuple[str, int, int]:
    return result.status, result.replay_cost_ns, result.stats.resident_bytes


# ---- semantics of log lines ----


def test_a_mutation_makes_new_storages(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        [
            *constant("w", 1),
            call("relu", ["w"], ["a"], 10),
            *memory("a", 100),
            mutate("add_", ["a", "w"], [0], 3),
            call("neg", ["a"], ["b"], 5),
            *memory("b", 100),
            release("a"),
        ],
    )
    assert program.op_count == 3
    assert program.unbudgeted_peak_bytes() == 201  # a before and after, not three copies
    result = program.simulate(201)
    assert ended(result) == ("ok", 0, 101)  # the constant and b
    assert (result.ops, result.plain_cost_ns, result.stats.drops) == (3, 18, 2)
    short = program.simulate(200)
    assert (short.status, short.ops) == ("out of budget", 1)
    assert short.reason.startswith("add_ needs 100 bytes; 101 bytes of a budget of 200 bytes")


def test_a_view_follows_a_mutation_to_the_new_storage(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        [
            call("ones", [], ["a"], 10),
            *memory("a", 100),
            call("view", ["a"], ["v"], 1),
            *memory("v", 0, 0),
            mutate("add_", ["v"], [0], 3),  # of the storage's size; the name v moves to it
            release("a"),
        ],
    )
    # The view's first tensor and a have no names: only the new storage is left.
    assert ended(program.simulate(200)) == ("ok", 0, 100)
    assert program.simulate(200).stats.drops == 1


def test_copies_of_names_keep_tensors_alive(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        [
            call("ones", [], ["a"], 10),
            *memory("a", 100),
            call("ones", [], ["b"], 20),
            *memory("b", 30),
            copy("c", "a"),
            release("a"),  # c keeps the tensor alive
            copy_from("c", "b"),  # a dies, and b has two names
            release("b"),
        ],
    )
    result = program.simulate(130)
    assert ended(result) == ("ok", 0, 30)
    assert result.stats.drops == 1


def test_a_tensor_with_a_name_at_the_end_is_rematerialized(tmp_path: Path) -> None:
    rows = [
        *constant("w", 10),
        call("f", ["w"], ["a"], 3),
        *memory("a", 100),
        call("g", ["a"], ["b"], 5),
        *memory("b", 100),
        release("a"),
        call("h", [], ["c"], 7),
        *memory("c", 150),
        release("w"),  # constants are never freed
    ]
    # b is evicted for c; at the end f and g are replayed, and a is evicted for c, which has a name.
    program = program_of(tmp_path, rows)
    assert program.unbudgeted_peak_bytes() == 260
    assert ended(program.simulate(260)) == ("ok", 0, 260)
    assert program.simulate(259).status == "out of budget"
    assert ended(program_of(tmp_path, [*rows, release("c")]).simulate(210)) == ("ok", 8, 210)


def test_the_simulation_begins_at_the_first_start_mark(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        [
            *constant("x", 1000),
            annotate("START"),
            call("ones", [], ["a"], 10),
            *memory("a", 100),
            annotate("START"),
            annotate("BACKWARD"),
            release("x"),
        ],
    )
    assert (program.op_count, program.unbudgeted_peak_bytes()) == (1, 100)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([call("f", ["missing"], ["a"], 1)], "line 1: 'missing' is missing or unknown"),
        ([*constant("w", 1), release("w"), release("w")], "line 4: tensor .* has no holder left"),
        ([*constant("w", 1), mutate("f", ["w"], [1], 1)], "line 3: .*argument 1 does not exist"),
        ([call("f", [], ["a"], 1), *memory("a", 1, 0)], "line 1: .*argument 0 does not exist"),
        ([call("f", [], [], 1)], "line 1: f costs 1 ns and has 0 results"),
    ],
)
def test_bad_logs_name_the_line(tmp_path: Path, rows: list[Row], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        program_of(tmp_path, rows)


# ---- published figures ----


@pytest.mark.parametrize("path", [GOLDEN, GOLDEN_ABLATION], ids=["policies", "ablation"])
def test_every_published_cell_is_reproduced(path: Path) -> None:
    if not path.is_file():
        pytest.skip(f"the DTR authors' figures are not in {SHARED}")
    cells = read_golden(path)
    for cell, result in zip(cells, simulate_golden(cells, LOGS), strict=True):
        assert cell.difference(result) <= TOLERANCE, (cell, result)
        assert cell.replays in (None, result.stats.replays), (cell, result)


def test_budgets_are_fractions_of_the_peak() -> None:
    if not GOLDEN.is_file():
        pytest.skip(f"the DTR authors' figures are not in {SHARED}")
    peaks = {
        log.name.removesuffix(".log.gz"): DtrProgram.read(log).unbudgeted_peak_bytes()
        for log in LOGS.iterdir()
    }
    for cell in read_golden(GOLDEN):
        assert cell.budget_bytes == int(peaks[cell.log] * cell.fraction)


# ---- the command ----

SMALL = [
    *constant("w", 10),
    call("f", ["w"], ["a"], 3),
    *memory("a", 100),
    call("g", ["a"], ["b"], 5),
    *memory("b", 100),
    call("h", [], ["c"], 7),
    *memory("c", 100),
]


def test_the_command_prints_and_writes_as_for_traces(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = write_log(tmp_path / "small.log.gz", [*SMALL, release("c")])
    out = tmp_path / "out.json"
    options = ["--preset", "dtr", "--policy", "all", "--budgets", "100,68", "--json", str(out)]
    assert main(["simulate", str(log), *options]) == 0
    header = next(line for line in capsys.readouterr().out.splitlines() if line[0] == "┃")
    assert [cell.strip() for cell in header.split("┃")[3:-1]] == dtr_policies()
    result = json.loads(out.read_text())
    assert (result["preset"], result["ops"], result["unbudgeted_peak_bytes"]) == ("dtr", 3, 310)
    rows = {(row["policy"], row["budget_bytes"]): row for row in result["rows"]}
    assert len(rows) == 2 * len(dtr_policies())
    assert rows["lru", 310]["time_ratio"] == 1.0
    assert rows["lru", 210]["time_ratio"] == (15 + 3) / 15
    assert rows["dtr-local-only-cost", 210]["stats"]["replays"] == 1


def test_bad_arguments_with_the_preset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = write_log(tmp_path / "small.log", SMALL)
    out = tmp_path / "out.json"
    (tmp_path / "run.rtrace").touch()
    for arguments, words in (
        ([tmp_path / "run.rtrace"], "needs a log of the DTR authors (.log, .log.gz); got"),
        ([tmp_path / "none.log"], "No such file"),
        ([log, "--policy", "random"], "--policy 'random' is not one of dtr, dtr-eq"),
        ([log, "--plan-ahead"], "does not support --plan-ahead"),
        ([log, "--timeline", tmp_path / "t.json"], "does not support --timeline"),
    ):
        said = refused(capsys, "simulate", *arguments, "--preset", "dtr", "--json", out)
        assert words in said
        assert not out.exists()
