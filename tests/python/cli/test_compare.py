"""`recoup compare`: two reports of `recoup run`."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from command import cli, cli_here, refused
from page_reports import failed_report, gpt2_report, plain_report

TRAIN = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    model(torch.randn(512, 64)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def written(folder: Path, name: str, report: dict[str, Any]) -> Path:
    path = folder / name
    path.write_text(json.dumps({key: report[key] for key in report if key != "step"}))
    return path


def rows(text: str) -> dict[str, list[str]]:
    """The cells of each row of the tables, by the first cell."""
    lines = (line.split("  ") for line in text.splitlines())
    cells = ([cell.strip() for cell in line if cell.strip()] for line in lines)
    return {row[0]: row[1:] for row in cells if len(row) > 1}


def test_reports_of_two_budgets(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    for budget in ("64MiB", "600KiB"):
        options = ["--quiet", "--budget", budget, "--report", f"{budget}.json"]
        assert cli("run", *options, "train.py", cwd=tmp_path).returncode == 0
    result = cli("compare", "64MiB.json", "600KiB.json", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    found = rows(result.stdout)
    assert found["budget"] == ["64.0 MiB", "600 KiB"]
    reports = [json.loads((tmp_path / f"{each}.json").read_text()) for each in ("64MiB", "600KiB")]
    replays = [report["stats"]["work"]["replays"] for report in reports]
    assert replays[0] == 0 < replays[1]
    assert found["replays"] == ["0", str(replays[1]), "new"]
    assert found["ops"][2] == "="
    assert found["peak"][2].startswith("-")
    assert {"0", "1", "2"} & found.keys()


def test_the_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = gpt2_report()
    second = copy.deepcopy(first)
    second["wall_ns"] = first["wall_ns"] * 2
    second["stats"]["work"]["replays"] = 7
    second["settings"]["policy"] = "lru"
    module = second["modules"][3]
    module["op_ns"] += 10**12
    files = [written(tmp_path, "a.json", first), written(tmp_path, "b.json", second)]
    found = rows(cli_here(capsys, "compare", *files).stdout)
    assert found["time"][2] == "+100.0 %"
    assert found["policy"] == [first["settings"]["policy"], "lru"]
    assert found["replays"][:2] == [f"{first['stats']['work']['replays']:,}", "7"]
    shown = [name for name in found if name == module["module"]]
    assert shown == [module["module"]]
    assert module["module"] not in rows(cli_here(capsys, "compare", *files, "--modules=0").stdout)


def test_equal_reports_differ_in_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, "a.json", gpt2_report())
    result = cli_here(capsys, "compare", file, file)
    assert "differs" not in result.stdout and "module" not in result.stdout
    assert all(row[-1] == "=" for name, row in rows(result.stdout).items() if name != "run")


def test_a_failed_run_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [
        written(tmp_path, "a.json", plain_report()),
        written(tmp_path, "b.json", failed_report()),
    ]
    assert "B ended with " in cli_here(capsys, "compare", *files).stdout


def test_names_are_shown_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = plain_report()
    files = [
        written(tmp_path, "a.json", report | {"title": "train.py [/data] :smile:"}),
        written(tmp_path, "b.json", report | {"title": "train.py [red]"}),
    ]
    found = rows(cli_here(capsys, "compare", *files).stdout)
    assert found["title"] == ["train.py [/data] :smile:", "train.py [red]"]


@pytest.mark.parametrize("text", ["", "{}", "[]", "{", "null", '{"title": 3}', "[" * 100_000])
def test_other_files_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    good = written(tmp_path, "a.json", plain_report())
    (tmp_path / "b.json").write_text(text)
    said = refused(capsys, "compare", good, tmp_path / "b.json")
    assert "b.json is not a report of `recoup run --report FILE.json`" in said
