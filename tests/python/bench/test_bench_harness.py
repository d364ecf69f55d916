"""The harness of all measurements: turns, processes, tables, files of results."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest

from recoup.bench.harness import pictures, results, tables, turns
from recoup.bench.harness.processes import call

PYTHON = Path(__file__).parents[3] / "python"


def test_turns_call_each_way_once_a_round() -> None:
    said: list[str] = []
    ways = {name: lambda name=name: said.append(name) or len(said) for name in "ab"}
    assert turns.in_turns(2, ways, warm_ups=1) == {"a": [3, 5], "b": [4, 6]}
    assert said == ["a", "b"] * 3


def test_a_pair_warms_up_and_the_others_are_compared() -> None:
    plain, seen = iter((9.0, 1.0, 2.0, 4.0)), []

    def ours(base: float) -> float:
        seen.append(base)
        return 3 * base if base < 4 else 4.0

    ratios = turns.Ratios()
    for pair in turns.pairs(3, lambda: next(plain), ours):
        ratios.add(*pair)
    assert seen == [9.0, 1.0, 2.0, 4.0]
    assert ratios.each == [3.0, 3.0, 1.0] and ratios.median == 3.0
    assert ratios.figures() == {
        "plain ms": 2e3, "its ms": 4e3, "over plain": 3.0, "least": 1.0, "most": 3.0, "pairs": 3,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("program", "result_name", "reason"),
    [
        ("print('log'); print('{\"a\": 1}')", "ok", ""),
        ("raise SystemExit('it is wrong')", "failed", "it is wrong"),
        ("raise SystemExit(3)", "failed", "it printed nothing"),
        ("import os; os.kill(os.getpid(), 9)", "failed", "ended by SIGKILL: it printed nothing"),
        ("import time; time.sleep(60)", "time limit", "killed after 2 s"),
    ],
)
def test_a_process_tells_how_it_ended(program: str, result_name: str, reason: str) -> None:
    ended = call([sys.executable, "-c", program], seconds=2)
    assert (ended.result_name, ended.reason) == (result_name, reason)
    if result_name == "ok":
        assert ended.result() == {"a": 1}
    else:
        with pytest.raises(RuntimeError, match=reason):
            ended.result()


def test_columns_are_formats_of_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    columns = {"net": "{net} {fraction:.0%}", "size": "{of[size]:,.1fMB}", "right": "{is_right}"}
    row = {"net": "unet", "fraction": 0.5, "of": {"size": 1_234_567_890}, "is_right": True}
    less = row | {"of": {"size": None}, "fraction": None, "is_right": False}
    assert tables.cells_of(columns, row) == ["unet 50%", "1,234.6 MB", "yes"]
    assert tables.cells_of(columns, less) == ["-", "-", "no"]
    assert tables.cells_of({"s": "{s:.1fms}"}, {"s": 0.0015}) == ["1.5 ms"]
    assert tables.print_markdown(columns, iter([row])) == [row]
    assert capsys.readouterr().out == (
        "| net | size | right |\n| --- | --- | --- |\n| unet 50% | 1,234.6 MB | yes |\n"
    )
    tables.print_rows("of nets", columns, [row])
    assert "of nets" in capsys.readouterr().out


@dataclasses.dataclass
class Counts(results.Results):
    """Results of this test."""

    command: ClassVar[str] = "recoup count"
    rows: list[dict[str, Any]] = dataclasses.field(default_factory=list)


def test_results_are_continued_with_the_same_settings_only(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    found = Counts.open(out, {"steps": 1})
    found.rows.append({"net": "unet"})
    found.write(out)
    assert out.read_text().splitlines()[1] == '"benchmark": "count",'
    assert Counts.open(out, {"steps": 1}) == found
    with pytest.raises(ValueError, match="measured with steps = 1, not 2; choose another file"):
        Counts.open(out, {"steps": 2})
    out.write_text('{"benchmark": "other", "settings": {}}')
    with pytest.raises(ValueError, match="was not written by `recoup count`"):
        Counts.open(out, {"steps": 1})


def test_equal_data_gives_an_equal_picture(tmp_path: Path) -> None:
    assert [pictures.grid(count, 4) for count in (0, 1, 4, 5)] == [(1, 1), (1, 1), (1, 4), (2, 4)]
    for name in ("a.png", "b.png"):
        figure, panels = pictures.panels(1, 2, (4, 2))
        panels[0][1].plot([1, 2])
        pictures.save(figure, tmp_path / name, 50)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_the_harness_needs_no_built_engine() -> None:
    """The first hour on a GPU imports it before it builds recoup."""
    program = (
        "import sys; from pathlib import Path; import harness; "
        "assert not {'torch', 'recoup._C', 'recoup._build'} & {*sys.modules}"
    )
    folder = PYTHON.parent / "tools/gpu_first_hour"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(folder)!r}); {program}"],
        env=environment,
        check=True,
    )
