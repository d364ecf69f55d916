"""recoup.layout and `recoup layout`. The planners have tests in tests/core/offline/layout_*."""

import json
import os
from pathlib import Path

import pytest

from command import refused
from recoup.commands.cli import main
from recoup.offline import layout
from recoup.offline.layout import Buffer, Op
from shared_data import SHARED

# Example 1 of CANN's graph engine, with half-open lifetimes.
EXAMPLE = "id,lower,upper,size\nA,1,3,1024\nB,2,5,2048\nC,3,5,1024\nD,4,6,512\nE,5,7,4096\n"
SIZES = {"bound": 4608, "max-block": 6656, "binary-block": 7680, "ge": 4608, "search": 4608}


@pytest.fixture
def example(tmp_path: Path) -> Path:
    path = tmp_path / "example.csv"
    path.write_text(EXAMPLE, encoding="utf-8")
    return path


def fails(capsys: pytest.CaptureFixture[str], *args: str | Path) -> str:
    return refused(capsys, "layout", *args)


def test_plan_gives_addresses(example: Path) -> None:
    buffers = layout.read_csv(example)
    assert buffers[0] == Buffer("A", 1, 3, 1024)
    result = layout.plan(buffers, planner="ge", alignment=512)
    assert result.offsets == (2048, 0, 2048, 4096, 0)
    assert (result.size_bytes, result.bound_bytes, result.sum_bytes) == (4608, 4608, 8704)
    assert result.optimal
    for planner, size in SIZES.items():
        assert layout.plan(buffers, planner=planner, alignment=512).size_bytes == size


def test_in_place_and_streams() -> None:
    buffers = [
        Buffer("image", 0, 2, 150_000),
        Buffer("conv", 1, 3, 3_200_000),
        Buffer("relu", 2, 4, 3_200_000),
        Buffer("pool", 3, 5, 800_000),
    ]
    ops = [Op("ReLU", 2, (1,), ((2, 1),)), Op("Pool", 3, (2,), ((3, 2),))]
    result = layout.plan(buffers, ops=ops)
    assert (result.sum_bytes, result.size_bytes) == (7_350_000, 3_350_000)
    assert result.in_place == (None, None, 1, 2)
    assert layout.plan(buffers, ops=ops, disable_inplace_ops=["ReLU"]).in_place[2] is None
    apart = [Buffer("a", 0, 1, 100), Buffer("b", 1, 2, 100, stream=1)]
    assert layout.plan(apart).size_bytes == 200


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"planner": "worst-fit"}, "unknown planner 'worst-fit'; the planners are bound, "),
        ({"capacity": 4607, "alignment": 512}, "4,608 bytes (4.5 KiB) are live at one moment"),
        ({"capacity": "4 bananas"}, "capacity '4 bananas' is not a size"),
        ({"alignment": 48}, "alignment must be a power of two"),
        ({"time_limit": -1.0}, "time_limit must be"),
        ({"time_limit": float("nan")}, "time_limit must be"),
        ({"ops": [Op("add", 1, (9,))]}, "op 'add' names buffer 9, but the number of buffers is 5"),
    ],
)
def test_invalid_options_are_refused_by_name(
    example: Path, options: dict[str, object], words: str
) -> None:
    with pytest.raises(ValueError, match=r".") as error:
        layout.plan(layout.read_csv(example), **options)  # type: ignore[arg-type]
    assert words in str(error.value)


def test_csv_errors_name_the_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("id,lower,upper,size\na,0,1,-5\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"bad\.csv, line 2: size must be 0 bytes or more, got -5"):
        layout.read_csv(path)
    with pytest.raises(FileNotFoundError, match=r"missing\.csv"):
        layout.read_csv(tmp_path / "missing.csv")


def test_command_compares_all_planners(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["layout", str(example), "--planner", "all", "--alignment", "512"]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()[2:] if line}
    assert list(rows) == [planner.name for planner in layout.planners()]
    for planner, size in SIZES.items():
        assert f" {size:,} " in rows[planner]
        assert f" {size / 4608:.4f}x " in rows[planner]


def test_command_dumps_and_writes(
    example: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    picture = tmp_path / "out.png"
    args = ["layout", str(example), "--planner", "ge", "--alignment", "512", "--dump"]
    assert main([*args, "--json", str(out), "--plot", str(picture)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["tensor", "size", "start", "end", "address", "place"] in lines
    assert ["A", "1,024", "1", "3", "2,048"] in lines
    assert ["C", "1,024", "3", "5", "2,048", "reused"] in lines
    written = json.loads(out.read_text(encoding="utf-8"))
    assert (written["planner"], written["size_bytes"]) == ("ge", 4608)
    assert [row["offset_bytes"] for row in written["buffers"]] == [2048, 0, 2048, 4096, 0]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_command_dumps_and_draws_all(
    example: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "out.png"
    args = ["layout", str(example), "--planner", "all", "--dump", "--plot", str(picture)]
    assert main(args) == 0
    lines = capsys.readouterr().out.splitlines()
    placing = [planner.name for planner in layout.planners() if planner.places]
    assert [line[:-1] for line in lines if line.endswith(":")] == placing
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_layout_that_does_not_fit_leaves_no_file(
    example: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    args = (example, "--capacity", "4000", "--json", out, "--plot", tmp_path / "out.png")
    error = fails(capsys, *args)
    assert "does not fit in the capacity of 4,000 bytes" in error
    assert "it needs 4,608 bytes (4.5 KiB); 4,608 bytes (4.5 KiB) are live at one moment" in error
    assert os.listdir(tmp_path) == ["example.csv"]
    assert main(["layout", str(example), "--planner", "all", "--capacity", "4000"]) != 0
    assert "needs 4608 bytes" in capsys.readouterr().err


def test_command_errors_are_one_line(
    example: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "FILE cannot be read: [Errno 2] No such file" in fails(capsys, tmp_path / "missing.csv")
    capsys.readouterr()
    cut = tmp_path / "cut.csv"
    cut.write_text(EXAMPLE[:-3], encoding="utf-8")
    assert "cut.csv, line 6: this line does not end with a line feed" in fails(capsys, cut)
    assert "--json cannot be written: there is no" in fails(
        capsys, example, "--json", tmp_path / "x" / "y"
    )
    assert "needs one planner" in fails(
        capsys, example, "--planner", "all", "--json", tmp_path / "x"
    )
    assert "bound computes none" in fails(capsys, example, "--planner", "bound", "--plot", "x.png")
    assert "has no ops" in fails(capsys, example, "--disable-inplace-ops", "relu")
    assert "; did you mean first-fit?" in fails(capsys, example, "--planner", "worst-fit")


def test_published_instance_fits() -> None:
    path = SHARED / "layouts" / "minimalloc" / "C.1048576.csv"
    if not path.is_file():
        pytest.skip(f"the published instances are not in {SHARED}")
    result = layout.plan(
        layout.read_csv(path), capacity=1_039_360, time_limit=1e9, node_limit=3_000_000
    )
    assert result.size_bytes == result.bound_bytes == 1_039_360
