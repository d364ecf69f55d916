"""`recoup layout` on traces: lifetimes, and outputs that reuse the memory of dying inputs."""

import json
from pathlib import Path

import pytest

import recoup
from command import refused
from recoup.commands.cli import main
from recoup.offline import _C, layout
from recoup.offline.in_place import base_name, place_of_output
from shared_data import SHARED

# (name, storages read, storages written, bytes of each result), or (event, storage)
Row = tuple[str, list[int], list[int], list[int]] | tuple[str, int]

# Image 0.15 MB -> Conv 3.2 MB -> ReLU 3.2 MB -> Pool 0.8 MB; each dies when it has been read.
CONV_RELU_POOL: list[Row] = [
    ("aten::rand", [], [], [150_000]),
    ("aten::convolution", [0], [], [3_200_000]),
    ("die", 0),
    ("aten::relu", [1], [], [3_200_000]),
    ("die", 1),
    ("aten::max_pool2d", [2], [], [800_000]),
    ("die", 2),
]


def trace_of(rows: list[Row]) -> recoup.Trace:
    builder = _C.TraceBuilder()
    names: list[str] = []
    number = 0
    for row in rows:
        if len(row) == 2:
            builder.add_event(row[0], row[1], 0)
            continue
        name, reads, writes, fresh = row
        if name not in names:
            names.append(name)
            builder.add_name(name)
        builder.add_kernel(fresh)
        both = list(dict.fromkeys([*reads, *writes]))
        operands = [(i, i in reads, i in writes, False) for i in both]
        builder.add_op(names.index(name), number, 1, True, operands, fresh)
        number += 1
    return recoup.Trace(builder.build())


@pytest.fixture
def example(tmp_path: Path) -> Path:
    path = tmp_path / "example.rtrace"
    trace_of(CONV_RELU_POOL).write(path)
    return path


def in_place(rows: list[Row]) -> dict[str, str]:
    """The input whose memory each output reuses, by the rules that the planners check."""
    trace = trace_of(rows)
    result = layout.plan(trace.buffers(), ops=trace.layout_ops(), planner="ge")
    names = [buffer.name for buffer in result.buffers]
    return {names[i]: names[of] for i, of in enumerate(result.in_place) if of is not None}


def test_conv_relu_pool(example: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    assert main(["layout", str(example), "--dump", "--json", str(out)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    relu, pool = "aten::relu#2", "aten::max_pool2d#3"
    address = next(line[4] for line in lines if line and line[0] == "aten::convolution#1")
    in_conv = ["in", "place", "of", "aten::convolution#1"]
    assert [relu, "3,200,000", "2", "4", address, *in_conv] in lines
    assert [pool, "800,000", "3", "4", address, "in", "place", "of", relu] in lines
    written = json.loads(out.read_text(encoding="utf-8"))
    assert (written["sum_bytes"], written["size_bytes"]) == (7_350_000, 3_350_000)
    places = [row["in_place_of"] for row in written["buffers"]]
    assert places == [None, None, "aten::convolution#1", relu]


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ([], 3_350_000),
        (["--no-in-place"], 6_400_000),
        (["--disable-inplace-ops", "relu"], 6_400_000),
        (["--disable-inplace-ops", "max_pool2d"], 4_000_000),
        (["--disable-inplace-ops", "aten::relu", "aten::max_pool2d"], 6_400_000),
    ],
)
def test_ops_can_be_excluded_from_reuse_in_place(
    example: Path, options: list[str], size: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["layout", str(example), "--planner", "search", *options]) == 0
    assert f" {size:,} " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--disable-inplace-ops", "rleu"], "has no op 'rleu'"),
        (["--no-in-place", "--disable-inplace-ops", "relu"], "cannot be combined"),
        (["--capacity", "3MB"], "it needs 3,350,000 bytes (3.2 MiB)"),
    ],
)
def test_bad_options_are_one_line(
    example: Path, options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = example.with_suffix(".json")
    assert words in refused(capsys, "layout", example, "--json", out, *options)
    assert not out.exists()


def test_an_input_must_be_dead_and_have_no_other_reader() -> None:
    make: list[Row] = [("rand", [], [], [64]), ("mul", [0], [], [64])]
    taken = {"mul#1": "rand#0"}
    assert in_place([*make, ("die", 0)]) == taken
    assert in_place([*make, ("sum", [1], [], [4]), ("die", 0)]) == {}
    assert in_place([make[0], ("sum", [0], [], [4]), ("mul", [0], [], [64]), ("die", 0)]) == {}
    # An op that only writes it, or reads an overwritten version, is no reader of the last version.
    assert in_place([make[0], ("add_", [0], [0], []), make[1], ("die", 0)]) == taken
    assert in_place([make[0], ("view", [], [], []), make[1], ("die", 0)]) == taken
    # The last op reads its input after the output would have overwritten it.
    assert in_place([*make, ("add_", [0], [0], []), ("die", 0)]) == {}


def test_an_escaped_input_is_not_reused() -> None:
    rows: list[Row] = [("rand", [], [], [64]), ("escape", 0), ("mul", [0], [], [64]), ("die", 0)]
    assert in_place(rows) == {}


def test_reuse_in_place_depends_on_the_op_and_the_size() -> None:
    def after(op: str, made: list[int], reads: tuple[int, ...] = (0, 1)) -> dict[str, str]:
        rows: list[Row] = [("rand", [], [], [64]), ("rand", [], [], [64])]
        return in_place([*rows, (op, list(reads), [], made), ("die", 0), ("die", 1)])

    assert after("aten::add.Tensor", [64]) == {"aten::add.Tensor#2": "rand#0"}
    assert after("aten::add.Tensor", [32]) == {}  # the output may overwrite any part of the input
    assert after("aten::mm", [64]) == {}
    assert after("aten::native_batch_norm", [64, 64]) == {"aten::native_batch_norm#2": "rand#0"}
    assert after("avg_pool2d", [16]) == {"avg_pool2d#2": "rand#0"}
    assert base_name("aten::add.Tensor") == base_name("add") == "add"
    assert place_of_output("aten::relu_") is None  # already writes in place


@pytest.mark.parametrize("name", ["lstm", "resnet32", "transformer", "unet"])
def test_ge_is_near_the_bound_on_published_logs(name: str) -> None:
    path = SHARED / "dtr-logs" / f"{name}.log.gz"
    if not path.is_file():
        pytest.skip(f"the published logs are not in {SHARED}")
    trace = recoup.read_dtr_log(path)
    result = layout.plan(trace.buffers(), ops=trace.layout_ops(), planner="ge", alignment=64)
    assert result.size_bytes <= 1.05 * result.bound_bytes
    order = trace.order(long_life="dynamic")
    assert order.bound_bytes <= order.program_bound_bytes


CALL = '{"INSTRUCTION": "CALL", "NAME": "relu", "ARGS": ["%s"], "RESULT": ["a"], "TIME": "1"}\n'
LOG = (
    '{"INSTRUCTION": "CONSTANT", "NAME": "w"}\n'
    '{"INSTRUCTION": "MEMORY", "NAME": "w", "MEMORY": "%s"}\n'
)


@pytest.mark.parametrize("command", ["layout", "order"])
def test_bad_files_are_one_line(
    command: str, example: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = example.read_bytes()
    out = tmp_path / "out.json"
    for name, content, words in (
        ("cut.rtrace", data[:-20], "offset"),
        ("changed.rtrace", data[:30] + bytes([data[30] ^ 1]) + data[31:], "offset"),
        ("version.rtrace", data[:8] + b"\x63\0\0\0" + data[12:], "version 99"),
        ("dangling.log", (LOG % "64" + CALL % "b").encode(), "line 3: 'b' is missing or unknown"),
        ("negative.log", (LOG % "-1" + CALL % "w").encode(), "line 2: "),
    ):
        (tmp_path / name).write_bytes(content)
        assert words in refused(capsys, command, tmp_path / name, "--json", out)
        assert not out.exists()
